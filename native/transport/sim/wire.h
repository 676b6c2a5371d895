// Both directions of a simulated connection, and what can happen to it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "transport/sim/pipe.h"

namespace byteps::sim {

class Wire {
 public:
  Wire(Network& network, const WireOptions& options)
      : network_(network),
        options_(options),
        pipes_{std::make_shared<Pipe>(network, options), std::make_shared<Pipe>(network, options)} {}

  // What this side writes, and what it reads.
  Pipe& out(size_t side) { return *pipes_[side]; }
  Pipe& in(size_t side) { return *pipes_[1 - side]; }

  // The connection breaks, and both ends notice at once. What was in flight is gone; what has arrived can
  // still be read.
  void lose() {
    lost_ = true;
    for (auto& pipe : pipes_) pipe->cut();
    for (auto& pipe : pipes_) {
      pipe->tell_reader();
      pipe->tell_writer();
    }
  }
  // Nothing comes through in either direction, and nobody closes.
  void silence() {
    if (silent_since_ns_ != EventLoop::kNever) return;
    silent_since_ns_ = network_.now_ns();
    for (auto& pipe : pipes_) pipe->cut();
  }
  void heal() {
    if (lost_) return;
    silent_since_ns_ = EventLoop::kNever;
    for (auto& pipe : pipes_) pipe->heal();
  }

  bool lost() const { return lost_; }
  int64_t silent_since_ns() const { return silent_since_ns_; }
  const WireOptions& options() const { return options_; }

 private:
  Network& network_;
  const WireOptions options_;
  const std::array<std::shared_ptr<Pipe>, 2> pipes_;
  bool lost_ = false;
  int64_t silent_since_ns_ = EventLoop::kNever;
};

}  // namespace byteps::sim
