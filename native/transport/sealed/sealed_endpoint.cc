#include "transport/sealed/sealed_endpoint.h"

#include "transport/sealed/sealed_stream.h"
#include "transport/stream/stream_endpoint.h"

namespace byteps {

std::unique_ptr<Endpoint> sealed_endpoint(std::shared_ptr<ByteStream> below,
                                          const sealed::SessionKeys& keys) {
  return std::make_unique<StreamEndpoint>(std::make_shared<sealed::SealedStream>(std::move(below), keys));
}

}  // namespace byteps
