// A crew in the network's time: so many at once, each job takes as long as is drawn.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/crew.h"
#include "sim/process.h"

namespace byteps::sim {

class SimCrew final : public Crew {
 public:
  SimCrew(Process& process, unsigned count, std::function<void()> job)
      : process_(process), job_(std::move(job)), free_at_ns_(count, 0) {}

  void start() override {
    running_ = true;
    for (; waiting_ > 0; --waiting_) plan();
  }
  void call() override { running_ ? plan() : static_cast<void>(++waiting_); }
  void stop() override { running_ = false; }

 private:
  void plan() {
    auto& free_at_ns = *std::min_element(free_at_ns_.begin(), free_at_ns_.end());
    free_at_ns = std::max(free_at_ns, process_.network().now_ns() + process_.frozen_ns()) + process_.job_ns();
    process_.network().at(free_at_ns, [this, alive = std::weak_ptr(alive_)] {
      if (!alive.expired() && running_ && !process_.dead()) job_();
    });
  }

  Process& process_;
  const std::function<void()> job_;
  std::vector<int64_t> free_at_ns_;  // of each of them
  size_t waiting_ = 0;               // called before start()
  bool running_ = false;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace byteps::sim
