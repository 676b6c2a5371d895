// A connected TCP (or Unix) socket as an endpoint.
#pragma once

#include <memory>

#include "base/fd.h"
#include "transport/endpoint.h"

namespace byteps {

std::unique_ptr<Endpoint> tcp_endpoint(Fd socket);

}  // namespace byteps
