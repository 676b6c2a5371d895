// The bytes of one connected TCP socket.
#pragma once

#include <memory>
#include <optional>

#include "base/fd.h"
#include "transport/stream/byte_stream.h"
#include "transport/tcp/reach.h"

namespace byteps {

class TcpStream final : public ByteStream,
                        public EventLoop::Handler,
                        public std::enable_shared_from_this<TcpStream> {
 public:
  explicit TcpStream(Fd fd) : fd_(std::move(fd)) {}

  void open(EventLoop& loop, User& user) override;
  void close() override;
  Moved read(const iovec* windows, size_t count) override;
  Moved write(const iovec* windows, size_t count) override;
  void wake_at(size_t bytes) override;
  void want_write(bool yes) override;
  bool delivered() const override;
  bool has_unread() const override;
  // What the kernel has seen lately.
  int64_t round_trip_ns() const override;
  // The kernel uses one address for both ends.
  bool same_machine() const override;
  int64_t cut_for_ns(bool wanted, int64_t tolerated_ns, int64_t now) override;

 private:
  void on_events(uint32_t events) override;
  Questions questions() const;

  Fd fd_;
  EventLoop* loop_ = nullptr;
  User* user_ = nullptr;
  size_t wake_at_bytes_ = 1;  // what the socket must hold before the loop is woken
  bool writing_ = false;
  std::optional<Reach> reach_;  // while watched
};

}  // namespace byteps
