// Connections inside one process.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/fd.h"
#include "transport/tcp/tcp_endpoint.h"

namespace byteps::testing {

// `far`: between two addresses, which is what a connection between machines looks like.
enum class Wire { unix_pair, tcp, far };

// Two ends of a connection, the server's first.
inline std::pair<Fd, Fd> connected_pair(Wire wire) {
  int ends[2];
  if (wire == Wire::unix_pair) {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    return {Fd(ends[0]), Fd(ends[1])};
  }
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Fd connecting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{}, other{};
  address.sin_family = other.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (wire == Wire::far ? 1 : 0));
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;
  if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::bind(connecting.get(), reinterpret_cast<sockaddr*>(&other), length) != 0 ||
      ::getsockname(listener.get(), any, &length) != 0 || ::connect(connecting.get(), any, length) != 0) {
    throw std::system_error(errno, std::generic_category(), "loopback connection");
  }
  Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const int fd : {connecting.get(), accepted.get()})
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {std::move(accepted), std::move(connecting)};
}

}  // namespace byteps::testing
