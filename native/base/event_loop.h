// The frame in which shards, worker I/O threads and the heartbeat run: events, an inbox and a deadline.
//
// Every object that a loop owns is touched by that loop only. Others reach it with post(): the work then runs
// in the loop, in its own time. What makes a loop go round is not said here: in a process it is a thread that
// sleeps in the kernel (epoll_loop.h), in a simulation the events of a made time (sim/sim_loop.h). Whoever
// needs one is given a Runtime (runtime.h) that makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

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
    virtual int64_t next_deadline_ns() const = 0;  // kNever: only events matter. Changes in the loop only
    virtual void on_deadline(int64_t now) = 0;
    // Something in the loop threw, for want of memory most likely, and what it did may be half done. Whatever
    // has a name of its own to fail by (a connection, an operation) has failed by it before this; the loop
    // goes on.
    virtual void on_exception(const char* what) noexcept = 0;
  };

  static constexpr int64_t kNever = INT64_MAX;

  explicit EventLoop(Owner& owner) : owner_(owner) {}
  virtual ~EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  virtual void start() = 0;
  // It does not go round any more. Afterwards the caller may take the owner's objects apart.
  virtual void stop() = 0;
  // Any thread. What is posted before stop() is done; what is posted after it is dropped.
  void post(std::function<void()> work);
  virtual void wake() = 0;

  // In the loop only.
  virtual void add(int fd, uint32_t events, Handler* handler) = 0;
  virtual void modify(int fd, uint32_t events, Handler* handler) = 0;
  virtual void remove(int fd, std::shared_ptr<Handler> handler) = 0;  // kept alive until the batch is over

 protected:
  void run_posted() noexcept;
  void end_batch() noexcept {
    guard([this] { owner_.on_batch_end(); });
  }
  // It is this late: the owner's deadline may be over.
  void meet_deadline(int64_t now) noexcept;
  template <class Work>
  void guard(Work&& work) noexcept {
    try {
      work();
    } catch (const std::exception& error) {
      owner_.on_exception(error.what());
    }
  }

  Owner& owner_;

 private:
  std::mutex inbox_mutex_;
  std::vector<std::function<void()>> inbox_;
};

}  // namespace byteps
