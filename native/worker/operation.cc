#include "worker/operation.h"

#include "base/clock.h"
#include "base/futex.h"

namespace byteps {

// Futexes rather than condition variables: an operation is made for every gradient of every step, and most
// are done before anybody waits. Then completing costs one atomic instruction.

Operation::Operation(std::shared_ptr<Tensor> tensor, const std::byte* src, std::byte* dst, int32_t priority,
                     uint16_t flags, uint32_t root)
    : tensor(std::move(tensor)),
      src(src),
      dst(dst),
      priority(priority),
      flags(flags),
      root(root),
      started_ns(now_ns()) {}

bool Operation::wait_finished(int64_t timeout_ns) {
  const int64_t deadline = now_ns() + timeout_ns;
  for (;;) {
    uint32_t seen = state_.load(std::memory_order_acquire);
    if (seen & kDone) return true;
    const int64_t left = deadline - now_ns();
    if (left <= 0) return false;
    if (!(seen & kWaited)) {
      if (!state_.compare_exchange_weak(seen, seen | kWaited, std::memory_order_acq_rel)) continue;
    }
    futex_wait(state_, kWaited, left);
  }
}

void Operation::finish() {
  if (state_.fetch_or(kDone, std::memory_order_acq_rel) & kWaited) futex_wake_all(state_);
}

Failure Operation::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Operation::fail(Failure failure) {
  std::lock_guard lock(mutex_);
  if (!failure_.kind.empty()) return;
  failure_ = std::move(failure);
  failed_ns_.store(now_ns(), std::memory_order_release);
}

void Operation::note_missing(const std::string& who) {
  std::lock_guard lock(mutex_);
  missing_ = who;
}

std::string Operation::missing() const {
  std::lock_guard lock(mutex_);
  return missing_;
}

}  // namespace byteps
