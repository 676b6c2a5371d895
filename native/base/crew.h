// Some who do the same kind of job, each job by one of them. Which jobs there are is their caller's business.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace byteps {

class Crew {
 public:
  virtual ~Crew() = default;
  virtual void start() = 0;
  // Any thread. There is one more job: one of them will do it. Before start() it waits.
  virtual void call() = 0;
  // Those who are at work finish it; nobody begins another one. Idempotent.
  virtual void stop() = 0;
};

class ThreadCrew final : public Crew {
 public:
  // The threads are called `name` and a number.
  ThreadCrew(unsigned count, std::string name, std::function<void()> job)
      : count_(count), name_(std::move(name)), job_(std::move(job)) {}
  ~ThreadCrew() override { ThreadCrew::stop(); }

  void start() override;
  void call() override;
  void stop() override;

 private:
  void work();

  const unsigned count_;
  const std::string name_;
  const std::function<void()> job_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  size_t calls_ = 0;
  bool stopping_ = false;
};

}  // namespace byteps
