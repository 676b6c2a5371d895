// A stream of bytes, encrypted, as an endpoint.
#pragma once

#include <memory>

#include "transport/endpoint.h"
#include "transport/sealed/keys.h"
#include "transport/stream/byte_stream.h"

namespace byteps {

// Throws std::runtime_error where there is no libcrypto.
std::unique_ptr<Endpoint> sealed_endpoint(std::shared_ptr<ByteStream> below, const sealed::SessionKeys& keys);

}  // namespace byteps
