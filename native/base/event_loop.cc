#include "base/event_loop.h"

namespace byteps {

void EventLoop::post(std::function<void()> work) {
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(work));
  }
  wake();
}

void EventLoop::run_posted() noexcept {
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(inbox_mutex_);
    work.swap(inbox_);
  }
  for (auto& item : work) guard(item);
  guard([this] { owner_.on_wake(); });
}

void EventLoop::meet_deadline(int64_t now) noexcept {
  if (now < owner_.next_deadline_ns()) return;
  guard([&] { owner_.on_deadline(now); });
  end_batch();
}

}  // namespace byteps
