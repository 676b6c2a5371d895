// What a member of a job runs on: the time, the loops it lives in, and the threads that help them.
//
// Worker, aggregator and liveness are given one and make nothing of the kind themselves, so that the very
// same objects run in threads of this machine, or many of them in one thread and in a time that somebody
// makes (native/sim, ADR 14). Threads that wait for an operation are no part of it: they belong to the user.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/crew.h"
#include "base/event_loop.h"

namespace byteps {

// Outlives what it has made.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Clock clock() const = 0;
  virtual std::unique_ptr<EventLoop> make_loop(EventLoop::Owner& owner, std::string name) = 0;
  virtual std::unique_ptr<Crew> make_crew(unsigned count, std::string name, std::function<void()> job) = 0;

  // This machine's clock, and threads.
  static Runtime& machine();
};

}  // namespace byteps
