// Somebody in the middle: passes on what two ends send each other, and does one thing to it on the way.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "tests/sockets.h"

namespace byteps::testing {

enum class Mischief { none, flip, drop, repeat, swap, reflect, cut };
constexpr int kMischiefs = 7;

struct Deed {
  Mischief mischief = Mischief::none;
  size_t at = 0;          // from this byte of the direction on
  size_t bytes = 1;       // that it does it to
  bool to_server = true;  // the direction
  std::byte mask{1};
};

// Its two outer ends belong to the server and the client. It ends when one of them is closed.
class Meddler {
 public:
  explicit Meddler(Deed deed) : deed_(deed) {
    std::tie(server_end, server_) = connected_pair(Wire::unix_pair);
    std::tie(client_end, client_) = connected_pair(Wire::unix_pair);
    thread_ = std::thread([this] { run(); });
  }
  ~Meddler() {
    ::shutdown(server_.get(), SHUT_RDWR);
    ::shutdown(client_.get(), SHUT_RDWR);
    thread_.join();
  }

  Fd server_end, client_end;

 private:
  void run() {
    for (;;) {
      pollfd ends[2] = {{client_.get(), POLLIN, 0}, {server_.get(), POLLIN, 0}};
      if (::poll(ends, 2, 30'000) <= 0) return stop();
      for (int i = 0; i < 2; ++i) {
        if (ends[i].revents && !pass(i == 0)) return stop();
      }
    }
  }

  void stop() {
    ::shutdown(server_.get(), SHUT_RDWR);
    ::shutdown(client_.get(), SHUT_RDWR);
  }

  bool pass(bool to_server) {
    std::byte buffer[16 * 1024];
    const int from = to_server ? client_.get() : server_.get();
    const int to = to_server ? server_.get() : client_.get();
    const ssize_t n = ::recv(from, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    std::vector<std::byte> bytes(buffer, buffer + n);
    std::vector<std::byte> back;
    const bool go_on = to_server != deed_.to_server || meddle(bytes, back);
    return send(to, bytes) && send(from, back) && go_on;
  }

  // False: this is the end of the connection.
  bool meddle(std::vector<std::byte>& bytes, std::vector<std::byte>& back) {
    const size_t begin = passed_;
    passed_ += bytes.size();
    kept_.insert(kept_.end(), bytes.begin(), bytes.end());
    if (done_ || deed_.at >= passed_) return true;
    done_ = true;
    const auto at = bytes.begin() + static_cast<long>(deed_.at - begin);
    const auto end = at + std::min(bytes.end() - at, static_cast<long>(deed_.bytes));
    switch (deed_.mischief) {
      case Mischief::none:
        break;
      case Mischief::flip:
        *at ^= deed_.mask;
        break;
      case Mischief::drop:
        bytes.erase(at, end);
        break;
      case Mischief::repeat: {
        const std::vector<std::byte> again(at, end);
        bytes.insert(end, again.begin(), again.end());
        break;
      }
      case Mischief::swap:
        std::reverse(at, end);
        break;
      case Mischief::reflect:
        back.assign(kept_.begin(), kept_.end());
        break;
      case Mischief::cut:
        bytes.erase(at, bytes.end());
        return false;
    }
    return true;
  }

  static bool send(int to, const std::vector<std::byte>& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }

  const Deed deed_;
  Fd server_, client_;
  size_t passed_ = 0;
  std::vector<std::byte> kept_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace byteps::testing
