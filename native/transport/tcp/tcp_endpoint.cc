#include "transport/tcp/tcp_endpoint.h"

#include "transport/stream/stream_endpoint.h"
#include "transport/tcp/tcp_stream.h"

namespace byteps {

std::unique_ptr<Endpoint> tcp_endpoint(Fd socket) {
  return std::make_unique<StreamEndpoint>(std::make_shared<TcpStream>(std::move(socket)));
}

}  // namespace byteps
