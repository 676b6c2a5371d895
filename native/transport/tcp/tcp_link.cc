#include "transport/tcp/tcp_link.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace byteps {
namespace {

constexpr size_t kMaxBatchFrames = 64;
// Two pieces: enough to keep the socket's buffer from running dry between two calls, little enough that an
// urgent frame does not queue behind much.
constexpr size_t kMaxBatchBytes = 2 * limits::kPieceBytes;
// A link that has read this much lets the others of its loop have a turn.
constexpr size_t kReadBudgetBytes = 4 * limits::kPieceBytes;
// Linux 6.15: the longest pause between two tries to send something again. Not yet in every header.
constexpr int kTcpRtoMaxMs = 44;
constexpr int64_t kRtoMaxBeforeNs = 120 * kNanosecondsPerSecond;

int get_option(int fd, int level, int name, int otherwise) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, name, &value, &size) == 0 ? value : otherwise;
}

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));  // a socket that has no such option does without
}
// Long enough that waking up costs little beside reading this much, short enough for any socket's buffer.
constexpr size_t kMostToWaitForBytes = limits::kFarPieceBytes;

}  // namespace

TcpLink::TcpLink(EventLoop& loop, Fd fd, Options options, FrameSource& source, FrameSink& sink,
                 Watcher& watcher)
    : loop_(loop),
      fd_(std::move(fd)),
      options_(options),
      source_(source),
      watcher_(watcher),
      reader_(options.job, options.epoch, sink) {
  batch_.reserve(kMaxBatchFrames);
}

TcpLink::~TcpLink() = default;

void TcpLink::open() { loop_.add(fd_.get(), EPOLLIN, this); }

void TcpLink::close() {
  if (!alive()) return;
  loop_.remove(fd_.get(), shared_from_this());
  fd_.reset();
  batch_.clear();
}

void TcpLink::give_up(End end, const char* why) noexcept {
  if (!alive()) return;
  close();
  std::string reason;
  try {
    reason = why;
  } catch (const std::bad_alloc&) {
  }
  watcher_.on_end(*this, end, reason);
}

void TcpLink::end(End end, const std::string& reason) {
  close();
  watcher_.on_end(*this, end, reason);
}

void TcpLink::on_events(uint32_t events) {
  const auto self = shared_from_this();  // a callback may drop the owner's reference
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive();
  if (alive() && (events & EPOLLOUT)) flush();
}

void TcpLink::receive() {
  size_t budget = kReadBudgetBytes;
  while (alive() && budget > 0) {
    iovec windows[2];
    msghdr message{};
    message.msg_iov = windows;
    message.msg_iovlen = static_cast<size_t>(reader_.windows(windows));
    size_t room = 0;
    for (size_t i = 0; i < message.msg_iovlen; ++i) room += windows[i].iov_len;
    const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return wake_at(reader_.missing());
      return end(End::closed, std::strerror(errno));
    }
    if (n == 0) {
      return end(End::closed,
                 reader_.at_boundary() ? "connection closed" : "connection closed inside a frame");
    }
    traffic_.received_bytes += static_cast<size_t>(n);
    try {
      reader_.received(static_cast<size_t>(n));
    } catch (const WireError& error) {
      return end(End::violation, error.what());
    } catch (const PeerGone& gone) {
      return end(End::closed, gone.what());
    } catch (const std::bad_alloc& lack) {
      return give_up(End::exhausted, lack.what());
    }
    // A short read means that the socket is empty: the epoll is level-triggered and tells when it is not.
    if (static_cast<size_t>(n) < room) {
      if (alive()) wake_at(reader_.missing());
      return;
    }
    budget -= std::min(budget, static_cast<size_t>(n));
  }
}

bool TcpLink::fill_batch() {
  batch_.clear();
  batch_at_ = 0;
  frame_at_ = 0;
  size_t bytes = 0;
  while (batch_.size() < kMaxBatchFrames && bytes < kMaxBatchBytes) {
    OutFrame& frame = batch_.emplace_back();
    if (!source_.next(frame)) {
      batch_.pop_back();
      break;
    }
    Header& header = frame.header;
    header.job = options_.job;
    header.epoch = options_.epoch;
    if (options_.checksum && header.length > 0) {
      header.flags |= kFlagChecksum;
      header.payload_crc = crc32c(frame.payload, header.length);
    }
    seal(header);
    bytes += kHeaderBytes + header.length;
  }
  return !batch_.empty();
}

void TcpLink::sent(size_t bytes) {
  traffic_.sent_bytes += bytes;
  while (batch_at_ < batch_.size()) {
    const size_t left = kHeaderBytes + batch_[batch_at_].header.length - frame_at_;
    if (bytes < left) {
      frame_at_ += bytes;
      return;
    }
    bytes -= left;
    frame_at_ = 0;
    batch_[batch_at_].keep.reset();
    ++batch_at_;
  }
}

void TcpLink::flush() {
  if (flushing_) return;  // a source may call back into us
  flushing_ = true;
  try {
    send();
  } catch (const std::bad_alloc& lack) {  // of a source that makes what it sends
    give_up(End::exhausted, lack.what());
  }
  flushing_ = false;
}

void TcpLink::send() {
  while (alive()) {
    if (batch_at_ == batch_.size() && !fill_batch()) {
      return want_write(false);
    }
    iovec windows[2 * kMaxBatchFrames];
    size_t count = 0;
    size_t skip = frame_at_;
    for (size_t i = batch_at_; i < batch_.size(); ++i) {
      OutFrame& frame = batch_[i];
      auto add = [&](const void* data, size_t length) {
        if (skip >= length) {
          skip -= length;
          return;
        }
        windows[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skip, length - skip};
        skip = 0;
      };
      add(&frame.header, kHeaderBytes);
      if (frame.header.length > 0) add(frame.payload, frame.header.length);
    }
    msghdr message{};
    message.msg_iov = windows;
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return want_write(true);
      return end(End::closed, std::strerror(errno));
    }
    sent(static_cast<size_t>(n));
  }
}

void TcpLink::let_go(const std::byte* begin, const std::byte* end, BufferPool& pool) {
  auto inside = [&](const std::byte* p) { return p && p >= begin && p < end; };
  if (inside(reader_.landing())) reader_.abandon();
  for (size_t i = batch_at_; i < batch_.size(); ++i) {
    OutFrame& frame = batch_[i];
    if (!inside(frame.payload)) continue;
    try {
      frame.keep = pool.take(frame.header.length);
    } catch (const std::bad_alloc& lack) {  // the frame cannot be finished, and so nothing can follow it
      return give_up(End::exhausted, lack.what());
    }
    std::memcpy(frame.keep.data(), frame.payload, frame.header.length);
    frame.payload = frame.keep.data();
  }
}

void TcpLink::want_write(bool yes) {
  if (yes == writing_) return;
  writing_ = yes;
  loop_.modify(fd_.get(), yes ? EPOLLIN | EPOLLOUT : EPOLLIN, this);
}

// A slow link brings a piece packet by packet, and nothing can be done before its last one: the kernel wakes
// us for that. A peer that closes or is lost wakes us all the same.
void TcpLink::wake_at(size_t bytes) {
  bytes = std::clamp<size_t>(bytes, 1, kMostToWaitForBytes);
  if (bytes == wake_at_bytes_) return;
  wake_at_bytes_ = bytes;
  const int value = static_cast<int>(bytes);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);  // if it cannot: more wake-ups
}

int64_t TcpLink::round_trip_ns() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt)) return 0;  // an old kernel
  return info.tcpi_min_rtt == UINT32_MAX ? 0 : int64_t{info.tcpi_min_rtt} * 1000;
}

bool TcpLink::delivered() const {
  int bytes = 0;  // sent and not acknowledged, or not even sent; 0 where the kernel cannot tell
  return batch_at_ == batch_.size() && (::ioctl(fd_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0);
}

bool TcpLink::has_unread() const {
  int bytes = 0;
  return ::ioctl(fd_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

void TcpLink::watch(bool wanted, int64_t now) {
  if (!alive() || options_.tolerated_ns == 0) return;
  if (wanted != reach_.has_value()) {
    // Only while something is wanted: a thousand idle connections would otherwise chat for nothing.
    set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, wanted);
    reach_.reset();
    if (!wanted) return;
    set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
    const int pause_ms = get_option(fd_.get(), IPPROTO_TCP, kTcpRtoMaxMs, -1);
    reach_.emplace(options_.tolerated_ns, pause_ms > 0 ? int64_t{pause_ms} * 1'000'000 : kRtoMaxBeforeNs);
  }
  if (!wanted) return;
  if (const int64_t silent = reach_->cut_for_ns(now, questions()); silent > 0) {
    end(End::unreachable, "nothing came through for " + seconds_text(silent) + " s");
  }
}

Questions TcpLink::questions() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {unsigned{info.tcpi_retransmits} + info.tcpi_probes, info.tcpi_bytes_acked};
}

bool TcpLink::nearby() const {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof(own), peer_size = sizeof(peer);
  if (getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return false;
  }
  if (own.ss_family == AF_INET) {
    return reinterpret_cast<sockaddr_in&>(own).sin_addr.s_addr ==
           reinterpret_cast<sockaddr_in&>(peer).sin_addr.s_addr;
  }
  if (own.ss_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<sockaddr_in6&>(own).sin6_addr,
                       &reinterpret_cast<sockaddr_in6&>(peer).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return own.ss_family == AF_UNIX;
}

}  // namespace byteps
