// A peer that speaks the wire by hand, to say things that our own worker never says.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "tests/check.h"
#include "tests/sockets.h"
#include "wire/frame_reader.h"
#include "wire/offer.h"

namespace byteps::testing {

class RawPeer final : FrameSink {
 public:
  struct Frame {
    Header header;
    std::vector<std::byte> payload;
    const float* floats() const { return reinterpret_cast<const float*>(payload.data()); }
  };

  RawPeer(uint64_t job, uint32_t epoch, uint16_t rank, Wire wire = Wire::unix_pair)
      : job_(job), epoch_(epoch), rank_(rank), reader_(job, epoch, *this) {
    std::tie(other_, fd_) = connected_pair(wire);
  }

  // For Aggregator::attach; once.
  std::unique_ptr<Endpoint> other_end() { return tcp_endpoint(std::move(other_)); }

  // Who has been cut off meanwhile notices when it receives.
  void send_bytes(const void* data, size_t bytes) {
    CHECK(::send(fd_.get(), data, bytes, MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET);
  }

  void send(Header header, const void* payload = nullptr, size_t bytes = 0) {
    header.job = job_;
    header.epoch = epoch_;
    header.sender = rank_;
    header.length = static_cast<uint32_t>(bytes);
    seal(header);
    std::vector<std::byte> frame(kHeaderBytes + bytes);
    std::memcpy(frame.data(), &header, kHeaderBytes);
    if (bytes > 0) std::memcpy(frame.data() + kHeaderBytes, payload, bytes);
    send_bytes(frame.data(), frame.size());
  }

  void push_compressed(uint32_t tensor, uint32_t round, uint8_t codec, const std::vector<std::byte>& payload,
                       CodecTerms terms = {}, uint16_t flags = 0) {
    Header header;
    header.type = FrameType::push;
    header.key = make_key(tensor, 0);
    header.round = round;
    header.codec = codec;
    header.received = terms.word();
    header.flags = flags;
    send(header, payload.data(), payload.size());
  }

  void push(uint32_t tensor, uint32_t round, const std::vector<float>& values, uint16_t flags = 0) {
    Header header;
    header.type = FrameType::push;
    header.key = make_key(tensor, 0);
    header.round = round;
    header.flags = flags;
    send(header, values.data(), values.size() * sizeof(float));
  }

  // The same, by address: any offer, good or bad.
  void push_offer(uint32_t tensor, uint32_t round, const Offer& offer, uint16_t flags = 0) {
    Header header;
    header.type = FrameType::push;
    header.key = make_key(tensor, 0);
    header.round = round;
    header.flags = flags | kFlagByAddress;
    send(header, &offer, kOfferBytes);
  }

  // The next frame, or nothing when the connection has ended or nothing comes within the patience.
  std::optional<Frame> receive(int patience_ms = 10'000) {
    while (frames_.empty()) {
      pollfd waiting{fd_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, patience_ms) <= 0) return std::nullopt;
      iovec windows[2];
      msghdr message{};
      message.msg_iov = windows;
      message.msg_iovlen = static_cast<size_t>(reader_.windows(windows));
      const ssize_t n = ::recvmsg(fd_.get(), &message, 0);
      if (n <= 0) {
        ended_ = true;
        return std::nullopt;
      }
      reader_.received(static_cast<size_t>(n));
    }
    Frame frame = std::move(frames_.front());
    frames_.erase(frames_.begin());
    return frame;
  }
  bool ended() const { return ended_; }
  // Without reading it.
  bool something_comes() {
    pollfd waiting{fd_.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 10'000) > 0;
  }
  bool silent() { return !receive(50) && !ended_; }

 private:
  std::byte* begin(const Header& header) override {
    coming_ = {header, std::vector<std::byte>(header.length)};
    return coming_.payload.data();
  }
  void end(const Header&, bool) override { frames_.push_back(std::move(coming_)); }

  const uint64_t job_;
  const uint32_t epoch_;
  const uint16_t rank_;
  FrameReader reader_;
  Fd fd_;
  Fd other_;
  bool ended_ = false;
  Frame coming_;
  std::vector<Frame> frames_;
};

}  // namespace byteps::testing
