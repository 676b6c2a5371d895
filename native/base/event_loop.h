// One thread, one epoll: the frame in which shards, worker I/O threads and the heartbeat run.
//
// Every object that a loop owns is touched by that thread only. Another thread reaches it with post(): the
// work then runs in the loop's thread. Nothing spins: with nothing to do the thread sleeps in the kernel, at
// most until its owner's next deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace byteps {

class EventLoop {
 public:
  // Gets the events of one file descriptor.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_events(uint32_t events) = 0;
  };
  // Owns the loop and decides what happens between events.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_wake() {}                      // after wake(), for an owner that has an inbox of its own
    virtual void on_batch_end() = 0;               // after every batch: send what the batch has produced
    virtual int64_t next_deadline_ns() const = 0;  // kNever: only events matter
    virtual void on_deadline(int64_t now) = 0;
    // Something in the loop threw, for want of memory most likely, and what it did may be half done. Whatever
    // has a name of its own to fail by (a connection, an operation) has failed by it before this; the loop
    // goes on.
    virtual void on_exception(const char* what) noexcept = 0;
  };

  static constexpr int64_t kNever = INT64_MAX;

  EventLoop(Owner& owner, std::string thread_name);
  ~EventLoop();

  void start();
  // Joins the thread. Afterwards the caller may take the owner's objects apart.
  void stop();
  // Any thread. What is posted before stop() is done; what is posted after it is dropped.
  void post(std::function<void()> work);
  void wake() { wake_.signal(); }

  // What run() does in turn. Whoever drives a loop by hand, in one thread and step by step, calls them
  // instead of start(): then the same events do the same again.
  bool turn(
      int timeout_ms);     // waits for a batch of events, at most this long, and handles it; false: none came
  void pass(int64_t now);  // it is this late: the owner's deadline may be over

  // Loop thread only.
  void add(int fd, uint32_t events, Handler* handler);
  void modify(int fd, uint32_t events, Handler* handler);
  void remove(int fd, std::shared_ptr<Handler> handler);  // kept alive until the batch is over

 private:
  void run();
  void run_posted();
  template <class Work>
  void guard(Work&& work) noexcept;

  Owner& owner_;
  const std::string name_;
  Fd epoll_;
  WakeFd wake_;
  std::atomic<bool> stopping_{false};
  std::vector<std::shared_ptr<Handler>> removed_;
  size_t handlers_ = 0;
  std::mutex inbox_mutex_;
  std::vector<std::function<void()>> inbox_;
  std::thread thread_;
};

}  // namespace byteps
