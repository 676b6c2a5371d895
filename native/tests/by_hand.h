// A runtime without threads: the test turns the loops, does the jobs and makes the time.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/epoll_loop.h"
#include "base/runtime.h"

namespace byteps::testing {

class ByHand final : public Runtime {
 public:
  // What the loops have to do now; false: nothing.
  bool turn() {
    bool did = false;
    for (Loop* loop : loops_) did |= loop->turn(0);
    return did;
  }
  // Later: deadlines may be over.
  void pass(int64_t ns) {
    now_ns_ += ns;
    for (Loop* loop : loops_) loop->pass(now_ns_);
  }
  // A job that waits for a crew; false: there is none.
  bool do_job() {
    for (HandCrew* crew : crews_) {
      if (crew->calls == 0) continue;
      --crew->calls;
      crew->job();
      return true;
    }
    return false;
  }

  Clock clock() const override { return Clock(now_ns_); }
  std::unique_ptr<EventLoop> make_loop(EventLoop::Owner& owner, std::string name) override {
    return std::make_unique<Loop>(*this, owner, std::move(name));
  }
  std::unique_ptr<Crew> make_crew(unsigned, std::string, std::function<void()> job) override {
    return std::make_unique<HandCrew>(*this, std::move(job));
  }

 private:
  struct Loop final : EpollLoop {
    Loop(ByHand& hand, Owner& owner, std::string name)
        : EpollLoop(owner, std::move(name), hand.clock()), hand(hand) {
      hand.loops_.push_back(this);
    }
    ~Loop() override { std::erase(hand.loops_, this); }
    void start() override {}
    ByHand& hand;
  };
  struct HandCrew final : Crew {
    HandCrew(ByHand& hand, std::function<void()> job) : hand(hand), job(std::move(job)) {
      hand.crews_.push_back(this);
    }
    ~HandCrew() override { std::erase(hand.crews_, this); }
    void start() override {}
    void call() override { ++calls; }
    void stop() override { calls = 0; }
    ByHand& hand;
    const std::function<void()> job;
    size_t calls = 0;
  };

  int64_t now_ns_ = 0;
  std::vector<Loop*> loops_;
  std::vector<HandCrew*> crews_;
};

}  // namespace byteps::testing
