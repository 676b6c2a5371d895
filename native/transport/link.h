// A link: carries frames between two members, in order, and says when it ends. With endpoint.h, which makes
// links, it is the whole contract of a transport; tests/test_transports.cc says the same in code.
//
// A link pulls what it sends: it asks its source for the next frame only when the wire can take one, so that
// everything not yet on the wire can still be overtaken by something more urgent. What arrives goes to a
// FrameSink. A link lives in one EventLoop and is touched by that thread only; source, sink and watcher are
// called by it, from inside flush() or out of the loop. Whoever calls a link keeps it for as long as the call
// takes; the loop does so by itself, so a callback out of the loop may drop the last reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/buffer.h"
#include "base/failure.h"
#include "wire/header.h"

namespace byteps {

struct OutFrame {
  Header header;  // the link seals it
  const std::byte* payload =
      nullptr;  // readable until the frame is sent: either `keep` holds it, or the caller
  BufferRef keep;
};

class FrameSource {
 public:
  virtual ~FrameSource() = default;
  // The next frame to send, or false if there is none now. Whoever has more later calls Link::flush().
  virtual bool next(OutFrame& out) = 0;
};

struct LinkOptions {
  uint64_t job = 0;
  uint32_t epoch = 0;
  bool checksum = false;  // put a CRC on the payloads sent; payloads received are checked if they carry one
  int64_t tolerated_ns = 0;  // silence that watch() puts up with; 0: any
};

class Link {
 public:
  enum class End {
    closed,       // the peer has closed, or the network has
    unreachable,  // nothing comes through any more, and nobody has closed
    violation,    // the peer broke the protocol
    exhausted,  // this process has no memory to go on with it; there may be none for a reason in words either
  };
  static FailureKind failure_of(End end) {
    switch (end) {
      case End::closed:
        return FailureKind::lost;
      case End::unreachable:
        return FailureKind::unreachable;
      case End::violation:
        return FailureKind::protocol;
      case End::exhausted:
        return FailureKind::memory;
    }
    return FailureKind::lost;
  }
  // Called at most once, from the loop's thread, when the link ends by itself. The link is then dead.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void on_end(Link& link, End end, const std::string& reason) = 0;
  };
  // What a link has moved, headers included; for the counters.
  struct Traffic {
    uint64_t sent_bytes = 0;
    uint64_t received_bytes = 0;
  };

  virtual ~Link() = default;

  // The source has frames: send as many as the wire takes now and the rest when it can take more.
  virtual void flush() = 0;
  // The memory [begin, end) is about to go: whatever of it is still to be sent is copied into the pool, and a
  // payload that is landing in it is thrown away.
  virtual void let_go(const std::byte* begin, const std::byte* end, BufferPool& pool) = 0;

  // False once it has ended or was closed: then no callback follows.
  virtual bool alive() const = 0;
  // Its owner wants no more of it: nobody is told.
  virtual void close() = 0;
  // Its owner cannot go on with it: ends it as if it had ended by itself.
  virtual void give_up(End end, const char* why) noexcept = 0;
  // Something is wanted of the other end: ends the link when nothing has come through for too long. To be
  // called about once a second, and with false when nothing is wanted any more.
  virtual void watch(bool wanted, int64_t now) = 0;

  // What it says about itself.
  virtual const Traffic& traffic() const = 0;
  // Frames were taken from the source and are not fully sent.
  virtual bool sending() const = 0;
  // Nothing that was handed over is still on its way to the other machine.
  virtual bool delivered() const = 0;
  // Something has arrived that this end has not read yet.
  virtual bool has_unread() const = 0;
  // The shortest time to the peer and back that was seen lately; 0 if nothing is known.
  virtual int64_t round_trip_ns() const = 0;
  // Both ends are on this machine.
  virtual bool same_machine() const = 0;
};

}  // namespace byteps
