#include "base/completion.h"

#include "base/clock.h"
#include "base/futex.h"

namespace byteps {

bool Completion::wait_finished(int64_t timeout_ns) {
  const int64_t deadline = machine_now_ns() + timeout_ns;
  for (;;) {
    uint32_t seen = state_.load(std::memory_order_acquire);
    if (seen & kDone) return true;
    const int64_t left = deadline - machine_now_ns();
    if (left <= 0) return false;
    if (!(seen & kWaited)) {
      if (!state_.compare_exchange_weak(seen, seen | kWaited, std::memory_order_acq_rel)) continue;
    }
    futex_wait(state_, kWaited, left);
  }
}

void Completion::finish() {
  if (state_.fetch_or(kDone, std::memory_order_acq_rel) & kWaited) futex_wake_all(state_);
}

void Completion::fail(Failure&& failure) noexcept {
  std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = std::move(failure);
  failed_ns_.store(machine_now_ns(), std::memory_order_release);
}

Failure Completion::failure() const noexcept {
  std::lock_guard lock(mutex_);
  return copy_of(failure_);
}

}  // namespace byteps
