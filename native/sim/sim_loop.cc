#include "sim/sim_loop.h"

#include <algorithm>
#include <stdexcept>

namespace byteps::sim {
namespace {

// A thread whose deadline is in the past does not sleep.
constexpr int kMostSpins = 100;

[[noreturn]] void no_descriptors() { throw std::logic_error("a simulated loop has no descriptors"); }

}  // namespace

void SimLoop::add(int, uint32_t, Handler*) { no_descriptors(); }
void SimLoop::modify(int, uint32_t, Handler*) { no_descriptors(); }
void SimLoop::remove(int, std::shared_ptr<Handler>) { no_descriptors(); }

void SimLoop::start() {
  state_ = State::running;
  plan_turn();
}

// As a thread does that hears of it: once more what was posted, unless there is nobody left to do it.
void SimLoop::stop() {
  const bool ran = state_ == State::running;
  state_ = State::stopped;
  if (!ran || process_.dead()) return;
  run_posted();
  end_batch();
}

void SimLoop::wake() {
  woken_ = true;
  plan_turn();
}

void SimLoop::plan(int64_t when_ns, void (SimLoop::*happens)()) {
  process_.network().at(when_ns, [this, happens, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || state_ != State::running || process_.dead()) return;
    if (const int64_t frozen_ns = process_.frozen_ns(); frozen_ns > 0) {
      return plan(process_.network().now_ns() + frozen_ns, happens);
    }
    (this->*happens)();
  });
}

void SimLoop::plan_turn() {
  if (state_ != State::running || turn_planned_) return;
  turn_planned_ = true;
  plan(process_.reaction(process_.network().now_ns()), &SimLoop::turn);
}

void SimLoop::turn() {
  turn_planned_ = false;
  if (std::exchange(woken_, false)) run_posted();
  end_batch();
  arm();
  process_.after_turn();
}

void SimLoop::meet() {
  const int64_t now = process_.network().now_ns();
  if (now < armed_ns_) return;  // an earlier one has come in between, and it looks again
  armed_ns_ = kNever;
  meet_deadline(now);
  if (owner_.next_deadline_ns() > now) {
    spins_ = 0;
  } else if (++spins_ == kMostSpins) {
    throw std::logic_error("a loop spins: its deadline is over and stays");
  }
  arm();
  process_.after_turn();
}

void SimLoop::arm() {
  const int64_t deadline = owner_.next_deadline_ns();
  if (deadline >= armed_ns_) return;
  armed_ns_ = std::max(deadline, process_.network().now_ns());
  plan(process_.reaction(armed_ns_), &SimLoop::meet);
}

}  // namespace byteps::sim
