// The end of something that others wait for, and its failure.
//
// Futexes rather than condition variables: an operation is made for every gradient of every step, and most
// are done before anybody waits. Then completing costs one atomic instruction.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/failure.h"

namespace byteps {

class Completion {
 public:
  bool finished() const { return state_.load(std::memory_order_acquire) & kDone; }
  // Returns finished(). Wakes as soon as it is.
  bool wait_finished(int64_t timeout_ns);
  void finish();

  // The first failure counts. Needs no memory.
  void fail(Failure&& failure) noexcept;
  void fail(const Failure& failure) noexcept { fail(copy_of(failure)); }
  bool failing() const { return failed_ns() != 0; }
  int64_t failed_ns() const { return failed_ns_.load(std::memory_order_acquire); }
  // Of the kind none: it succeeded, if it is finished.
  Failure failure() const noexcept;

 private:
  static constexpr uint32_t kDone = 1, kWaited = 2;
  std::atomic<uint32_t> state_{0};  // a futex word
  std::atomic<int64_t> failed_ns_{0};
  mutable std::mutex mutex_;  // of what follows
  Failure failure_;
};

}  // namespace byteps
