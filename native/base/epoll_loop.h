// One thread, one epoll. Nothing spins: with nothing to do the thread sleeps in the kernel, at most until its
// owner's next deadline.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace byteps {

class EpollLoop : public EventLoop {
 public:
  EpollLoop(Owner& owner, std::string thread_name, Clock clock = {});
  ~EpollLoop() override;

  void start() override;
  void stop() override;  // joins the thread
  void wake() override { wake_.signal(); }
  void add(int fd, uint32_t events, Handler* handler) override;
  void modify(int fd, uint32_t events, Handler* handler) override;
  void remove(int fd, std::shared_ptr<Handler> handler) override;

  // What the thread does in turn. Whoever drives a loop by hand, in one thread and step by step, calls them
  // instead of start(): then the same events do the same again.
  // Waits for a batch of events, at most this long, and handles it; false: none came.
  bool turn(int timeout_ms);
  void pass(int64_t now) { meet_deadline(now); }

 private:
  void run();

  const std::string name_;
  const Clock clock_;
  Fd epoll_;
  WakeFd wake_;
  std::atomic<bool> stopping_{false};
  std::vector<std::shared_ptr<Handler>> removed_;
  size_t handlers_ = 0;
  std::thread thread_;
};

}  // namespace byteps
