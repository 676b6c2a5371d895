// An endpoint: this side of a connection that exists, whose peer has been checked, and that nobody uses yet.
//
// The control plane makes it and hands it to whoever will use it, as a value that any thread may carry. There
// it becomes a link. What a connection is made of (a descriptor, keys, a queue pair) is the endpoint's own
// business: nobody above sees it.
#pragma once

#include <memory>

#include "base/event_loop.h"
#include "transport/link.h"
#include "wire/frame_reader.h"

namespace byteps {

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // Once: the connection becomes a link that lives in this loop. By the loop's thread, or before it starts.
  // No callback comes before the loop turns or the caller flushes; source, sink and watcher outlive the link.
  // Throws when the loop cannot take it.
  virtual std::shared_ptr<Link> open(EventLoop& loop, const LinkOptions& options, FrameSource& source,
                                     FrameSink& sink, Link::Watcher& watcher) = 0;
};

}  // namespace byteps
