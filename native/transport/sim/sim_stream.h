// One end of a simulated connection, as a stream of bytes.
#pragma once

#include <memory>

#include "transport/sim/wire.h"
#include "transport/stream/byte_stream.h"

namespace byteps::sim {

class SimStream final : public ByteStream, public std::enable_shared_from_this<SimStream> {
 public:
  SimStream(std::shared_ptr<Wire> wire, size_t side) : wire_(std::move(wire)), side_(side) {}
  ~SimStream() override { close(); }

  void open(EventLoop& loop, User& user) override;
  void close() override;
  Moved read(const iovec* windows, size_t count) override;
  Moved write(const iovec* windows, size_t count) override;
  void wake_at(size_t bytes) override;
  void want_write(bool yes) override;
  bool delivered() const override { return out().delivered(); }
  bool has_unread() const override { return in().unread() > 0; }
  int64_t round_trip_ns() const override { return out().round_trip_ns(); }
  bool same_machine() const override { return wire_->options().same_machine; }
  int64_t cut_for_ns(bool wanted, int64_t tolerated_ns, int64_t now) override;

 private:
  Pipe& in() const { return wire_->in(side_); }
  Pipe& out() const { return wire_->out(side_); }
  bool readable() const;
  bool writable() const;
  void look();  // posts to the loop if there is something for the user, once
  void tell_user();

  const std::shared_ptr<Wire> wire_;
  const size_t side_;
  EventLoop* loop_ = nullptr;
  User* user_ = nullptr;
  size_t wake_at_bytes_ = 1;
  bool wants_write_ = false;
  bool posted_ = false;
  bool closed_ = false;
  int64_t watched_since_ns_ = EventLoop::kNever;
};

}  // namespace byteps::sim
