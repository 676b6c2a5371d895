// Turns a stream of bytes into frames, without touching a socket.
//
// The owner asks windows() where the next bytes should be put, reads into them from wherever bytes come, and
// says received(n). Payloads land straight at the address that the sink names; headers and small frames go
// through a buffer, many to one read. Because nothing here does I/O, a test can feed any stream cut at any
// place, and so does the fuzzer.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <vector>

#include "base/tuning.h"
#include "wire/header.h"

namespace byteps {

// Gets every frame in the order of the stream. Both calls may throw WireError: the connection is then over.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A valid header has come. Returns where its `length` bytes of payload go, nullptr to throw them away.
  virtual std::byte* begin(const Header& header) = 0;
  // The payload is complete, and its checksum is right if it had one and was not thrown away.
  virtual void end(const Header& header, bool landed) = 0;
};

class FrameReader {
 public:
  FrameReader(uint64_t job, uint32_t epoch, FrameSink& sink)
      : job_(job), epoch_(epoch), sink_(sink), buffer_(tuning::kReadBufferBytes) {}

  // Fills in one or two windows and returns how many.
  int windows(iovec (&out)[2]);
  void received(size_t bytes);
  // Where the payload being read lands, or nullptr; abandon() throws the rest of it away, for memory that is
  // about to go.
  const std::byte* landing() const { return in_payload_ ? landing_ : nullptr; }
  void abandon() { landing_ = nullptr; }
  // The sink wants no more, and may say so while it gets a frame: what has come after that is not looked at.
  void stop() { stopped_ = true; }
  // How many bytes complete the header or the payload that is being read: before they are all there, nothing
  // can be done with them.
  size_t missing() const { return in_payload_ ? header_.length - done_ : kHeaderBytes - filled_; }
  // True between frames: a stream may end here without anything being lost.
  bool at_boundary() const { return !in_payload_ && filled_ == 0; }

 private:
  void parse();
  size_t take_payload(const std::byte* bytes, size_t available);
  void finish();

  const uint64_t job_;
  const uint32_t epoch_;
  FrameSink& sink_;
  std::vector<std::byte> buffer_;
  size_t filled_ = 0;        // bytes in buffer_ that are not parsed yet
  bool in_payload_ = false;  // then filled_ is 0
  Header header_{};
  std::byte* landing_ = nullptr;
  size_t done_ = 0;  // bytes of the payload that have come
  bool stopped_ = false;
  bool expect_large_ = false;  // the last frame was large: read no further than the next header
};

}  // namespace byteps
