// The fuzzer's end of a connection: sends any bytes in any portions, and takes apart the frames that come.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "tests/fuzz/script.h"
#include "tests/sockets.h"
#include "wire/frame_reader.h"

namespace byteps::fuzz {

class WireEnd final : FrameSink {
 public:
  struct Frame {
    Header header;
    std::vector<std::byte> payload;
  };

  WireEnd(uint64_t job, uint32_t epoch, bool far) : job_(job), epoch_(epoch), reader_(job, epoch, *this) {
    try {
      std::tie(other_, own_) = testing::connected_pair(far ? testing::Wire::far : testing::Wire::unix_pair);
    } catch (const std::system_error&) {  // other programs have taken all ports for a moment
      std::tie(other_, own_) = testing::connected_pair(testing::Wire::unix_pair);
    }
    const linger at_once{1, 0};  // a million connections must not leave a million ports in TIME_WAIT
    for (const int fd : {own_.get(), other_.get()})
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  std::unique_ptr<Endpoint> other_end() { return tcp_endpoint(std::move(other_)); }  // once

  // A frame with whatever the header says, except that job, epoch, length and checksums are right.
  void queue(Header header, const std::vector<std::byte>& payload, bool checksum = false) {
    header.job = job_;
    header.epoch = epoch_;
    header.length = static_cast<uint32_t>(payload.size());
    queue_as_is(header, payload, checksum);
  }
  // The same, but length, job and epoch are the caller's, too.
  void queue_as_is(Header header, const std::vector<std::byte>& payload, bool checksum = false) {
    if (checksum) {
      header.flags |= kFlagChecksum;
      header.payload_crc = crc32c(payload.data(), payload.size());
    }
    seal(header);
    const auto* raw = reinterpret_cast<const std::byte*>(&header);
    waiting_.insert(waiting_.end(), raw, raw + kHeaderBytes);
    waiting_.insert(waiting_.end(), payload.begin(), payload.end());
  }
  void queue_bytes(const std::vector<std::byte>& bytes) {
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  }

  // Hands on at most so many of the bytes that are queued, as far as the socket takes them.
  void flow(size_t most) {
    most = std::min(most, waiting_.size());
    size_t done = 0;
    while (done < most && !ended_) {
      const ssize_t n = ::send(own_.get(), waiting_.data() + done, most - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (n < 0) return hang_up();
      done += static_cast<size_t>(n);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
  }
  bool idle() const { return waiting_.empty(); }

  // All frames that have come; what the other side sends must be frames.
  std::vector<Frame> receive() {
    while (!ended_) {
      iovec windows[2];
      msghdr message{};
      message.msg_iov = windows;
      message.msg_iovlen = static_cast<size_t>(reader_.windows(windows));
      const ssize_t n = ::recvmsg(own_.get(), &message, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (n <= 0) {
        hang_up();
        break;
      }
      try {
        reader_.received(static_cast<size_t>(n));
      } catch (const WireError& error) {
        found(std::string("what came is no frame: ") + error.what());
      }
    }
    return std::exchange(frames_, {});
  }

  bool ended() const { return ended_; }
  void hang_up() {
    ended_ = true;
    waiting_.clear();
    own_.reset();
  }

 private:
  std::byte* begin(const Header& header) override {
    coming_ = {header, std::vector<std::byte>(header.length)};
    return coming_.payload.data();
  }
  void end(const Header&, bool) override { frames_.push_back(std::move(coming_)); }

  const uint64_t job_;
  const uint32_t epoch_;
  FrameReader reader_;
  Fd own_, other_;
  bool ended_ = false;
  std::vector<std::byte> waiting_;
  Frame coming_;
  std::vector<Frame> frames_;
};

}  // namespace byteps::fuzz
