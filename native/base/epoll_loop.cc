#include "base/epoll_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/thread.h"

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

EpollLoop::EpollLoop(Owner& owner, std::string thread_name, Clock clock)
    : EventLoop(owner), name_(std::move(thread_name)), clock_(clock), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  control(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, nullptr);
}

EpollLoop::~EpollLoop() { EpollLoop::stop(); }

void EpollLoop::start() {
  thread_ = start_thread(name_, [this] { run(); });
}

void EpollLoop::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_relaxed);
  wake();
  thread_.join();
}

void EpollLoop::add(int fd, uint32_t events, Handler* handler) {
  removed_.reserve(removed_.size() + handlers_ + 1);  // so that remove() needs no memory
  control(epoll_.get(), EPOLL_CTL_ADD, fd, events, handler);
  ++handlers_;
}

void EpollLoop::modify(int fd, uint32_t events, Handler* handler) {
  control(epoll_.get(), EPOLL_CTL_MOD, fd, events, handler);
}

void EpollLoop::remove(int fd, std::shared_ptr<Handler> handler) {
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) != 0) return;  // it was never added
  --handlers_;
  removed_.push_back(std::move(handler));
}

bool EpollLoop::turn(int timeout_ms) {
  std::array<epoll_event, 64> events;
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
    if (!gone) guard([&] { handler->on_events(events[i].events); });
  }
  end_batch();
  removed_.clear();
  return n > 0;
}

void EpollLoop::run() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    int timeout_ms = -1;
    if (const int64_t deadline = owner_.next_deadline_ns(); deadline != kNever) {
      timeout_ms = static_cast<int>(
          std::clamp<int64_t>((deadline - clock_.now_ns() + 999'999) / 1'000'000, 0, 60'000));
    }
    turn(timeout_ms);
    if (owner_.next_deadline_ns() != kNever) pass(clock_.now_ns());
  }
  run_posted();
  end_batch();
  removed_.clear();
}

}  // namespace byteps
