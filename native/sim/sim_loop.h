// A loop that goes round in the network's time: a turn for what was posted, and one for each deadline.
#pragma once

#include <memory>

#include "base/event_loop.h"
#include "sim/process.h"

namespace byteps::sim {

class SimLoop final : public EventLoop {
 public:
  SimLoop(Process& process, Owner& owner) : EventLoop(owner), process_(process) {}

  void start() override;
  void stop() override;
  void wake() override;
  // What is simulated has no descriptors.
  void add(int fd, uint32_t events, Handler* handler) override;
  void modify(int fd, uint32_t events, Handler* handler) override;
  void remove(int fd, std::shared_ptr<Handler> handler) override;

 private:
  // At this time, unless the loop has stopped by then.
  void plan(int64_t when_ns, void (SimLoop::*happens)());
  void plan_turn();
  void turn();
  void meet();
  void arm();

  Process& process_;
  const std::shared_ptr<char> alive_ =
      std::make_shared<char>();  // what is planned looks whether this is gone
  enum class State { made, running, stopped } state_ = State::made;
  bool woken_ = false;
  bool turn_planned_ = false;
  int64_t armed_ns_ = kNever;  // when the deadline is looked at next
  int spins_ = 0;              // deadlines in a row that were over and stayed
};

}  // namespace byteps::sim
