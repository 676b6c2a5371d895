#include "transport/tcp/tcp_stream.h"

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

#include "base/tuning.h"

namespace byteps {
namespace {

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

}  // namespace

void TcpStream::open(EventLoop& loop, User& user) {
  loop.add(fd_.get(), EPOLLIN, this);
  loop_ = &loop;
  user_ = &user;
}

void TcpStream::close() {
  if (loop_) loop_->remove(fd_.get(), shared_from_this());
  fd_.reset();
}

void TcpStream::on_events(uint32_t events) {
  user_->on_ready(events & (EPOLLIN | EPOLLHUP | EPOLLERR), events & EPOLLOUT);
}

ByteStream::Moved TcpStream::read(const iovec* windows, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(windows);
  message.msg_iovlen = count;
  for (;;) {
    const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (n > 0) return {static_cast<size_t>(n)};
    if (n == 0) return {0, true};
    if (errno == EINTR) continue;
    // The epoll is level-triggered: it tells when there is more.
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {0, true, std::strerror(errno)};
  }
}

ByteStream::Moved TcpStream::write(const iovec* windows, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(windows);
  message.msg_iovlen = count;
  for (;;) {
    const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return {static_cast<size_t>(n)};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {0, true, std::strerror(errno)};
  }
}

void TcpStream::want_write(bool yes) {
  if (yes == writing_) return;
  writing_ = yes;
  loop_->modify(fd_.get(), yes ? EPOLLIN | EPOLLOUT : EPOLLIN, this);
}

// A slow link brings a piece packet by packet, and nothing can be done before its last one: the kernel wakes
// us for that. A peer that closes or is lost wakes us all the same.
void TcpStream::wake_at(size_t bytes) {
  bytes = std::clamp<size_t>(bytes, 1, tuning::kMostToWaitForBytes);
  if (bytes == wake_at_bytes_) return;
  wake_at_bytes_ = bytes;
  const int value = static_cast<int>(bytes);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);  // if it cannot: more wake-ups
}

int64_t TcpStream::round_trip_ns() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt)) return 0;  // an old kernel
  return info.tcpi_min_rtt == UINT32_MAX ? 0 : int64_t{info.tcpi_min_rtt} * 1000;
}

bool TcpStream::delivered() const {
  int bytes = 0;  // sent and not acknowledged, or not even sent; 0 where the kernel cannot tell
  return ::ioctl(fd_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

bool TcpStream::has_unread() const {
  int bytes = 0;
  return ::ioctl(fd_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

int64_t TcpStream::cut_for_ns(bool wanted, int64_t tolerated_ns, int64_t now) {
  if (wanted != reach_.has_value()) {
    // Only while something is wanted: a thousand idle connections would otherwise chat for nothing.
    set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, wanted);
    reach_.reset();
    if (!wanted) return 0;
    set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
    const int pause_ms = get_option(fd_.get(), IPPROTO_TCP, kTcpRtoMaxMs, -1);
    reach_.emplace(tolerated_ns, pause_ms > 0 ? int64_t{pause_ms} * 1'000'000 : kRtoMaxBeforeNs);
  }
  return wanted ? reach_->cut_for_ns(now, questions()) : 0;
}

Questions TcpStream::questions() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {unsigned{info.tcpi_retransmits} + info.tcpi_probes, info.tcpi_bytes_acked};
}

bool TcpStream::same_machine() const {
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
