// An endpoint of a transport that moves bytes.
#pragma once

#include <utility>

#include "transport/endpoint.h"
#include "transport/stream/stream_link.h"

namespace byteps {

class StreamEndpoint final : public Endpoint {
 public:
  explicit StreamEndpoint(std::shared_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  std::shared_ptr<Link> open(EventLoop& loop, const LinkOptions& options, FrameSource& source,
                             FrameSink& sink, Link::Watcher& watcher) override {
    auto link = std::make_shared<StreamLink>(std::move(stream_), options, source, sink, watcher);
    link->open(loop);
    return link;
  }

 private:
  std::shared_ptr<ByteStream> stream_;
};

}  // namespace byteps
