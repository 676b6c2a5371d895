// The whole contract of a transport: it carries frames between two members, in order, and says when it ends.
//
// A link pulls what it sends: it asks its source for the next frame only when the wire can take one, so that
// everything not yet on the wire can still be overtaken by something more urgent. What arrives goes to a
// FrameSink. A link lives in one EventLoop and is touched by that thread only.
#pragma once

#include <cstddef>
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
  // The next frame to send, or false if there is none now. The caller of Link::ready() promises more.
  virtual bool next(OutFrame& out) = 0;
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

  virtual ~Link() = default;
  // The source has frames: send as many as the wire takes now and the rest when it can take more.
  virtual void flush() = 0;
  virtual bool alive() const = 0;
  virtual void close() = 0;
};

}  // namespace byteps
