#include "base/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/clock.h"

namespace byteps {
namespace {

void control(int epoll, int operation, int fd, uint32_t events, void* data) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = data;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

}  // namespace

EventLoop::EventLoop(Owner& owner, std::string thread_name)
    : owner_(owner), name_(std::move(thread_name)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  control(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, nullptr);
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::start() {
  // Signals belong to the interpreter's main thread: block them all while the thread is made, it inherits
  // that.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

void EventLoop::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);
  wake();
  thread_.join();
}

void EventLoop::post(std::function<void()> work) {
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(work));
  }
  wake();
}

void EventLoop::run_posted() {
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(inbox_mutex_);
    work.swap(inbox_);
  }
  for (auto& item : work) item();
  owner_.on_wake();
}

void EventLoop::add(int fd, uint32_t events, Handler* handler) {
  control(epoll_.get(), EPOLL_CTL_ADD, fd, events, handler);
}

void EventLoop::modify(int fd, uint32_t events, Handler* handler) {
  control(epoll_.get(), EPOLL_CTL_MOD, fd, events, handler);
}

void EventLoop::remove(int fd, std::shared_ptr<Handler> handler) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  removed_.push_back(std::move(handler));
}

void EventLoop::run() {
  std::array<epoll_event, 64> events;
  while (!stopping_.load(std::memory_order_relaxed)) {
    int timeout_ms = -1;
    if (const int64_t deadline = owner_.next_deadline_ns(); deadline != kNever) {
      timeout_ms =
          static_cast<int>(std::clamp<int64_t>((deadline - now_ns() + 999'999) / 1'000'000, 0, 60'000));
    }
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    if (n < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "epoll_wait");
    for (int i = 0; i < n; ++i) {
      auto* handler = static_cast<Handler*>(events[i].data.ptr);
      if (!handler) {
        wake_.drain();
        run_posted();
        continue;
      }
      const bool gone = std::any_of(removed_.begin(), removed_.end(),
                                    [&](const auto& removed) { return removed.get() == handler; });
      if (!gone) handler->on_events(events[i].events);
    }
    owner_.on_batch_end();
    removed_.clear();
    if (owner_.next_deadline_ns() != kNever) {
      if (const int64_t now = now_ns(); now >= owner_.next_deadline_ns()) {
        owner_.on_deadline(now);
        owner_.on_batch_end();
      }
    }
  }
  run_posted();
  owner_.on_batch_end();
  removed_.clear();
}

}  // namespace byteps
