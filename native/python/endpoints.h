// The endpoint of a connected socket that Python hands over, with the keys that its handshake has made, if
// any.
#pragma once

#include <memory>

#include "base/fd.h"
#include "transport/sealed/sealed_endpoint.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_stream.h"

namespace byteps {

inline std::unique_ptr<Endpoint> endpoint_of(int fd, const sealed::SessionKeys* keys) {
  Fd socket(fd);
  if (!keys) return tcp_endpoint(std::move(socket));
  return sealed_endpoint(std::make_shared<TcpStream>(std::move(socket)), *keys);
}

}  // namespace byteps
