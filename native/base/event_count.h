// "Something has changed, look again": a counter in shared memory that sleeps and wakes without losing news.
//
// A sleeper prepares, looks at its condition, and sleeps only if nothing has happened since it prepared.
// Whoever changes the condition notifies afterwards; that costs a system call only if somebody sleeps.
#pragma once

#include "base/futex.h"

namespace byteps {

class EventCount {
 public:
  // All zeros is a valid EventCount: shared memory needs no constructor.
  uint32_t prepare() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    return news_.load(std::memory_order_seq_cst);
  }
  void cancel() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  void sleep(uint32_t prepared, int64_t timeout_ns) {
    futex_wait(news_, prepared, timeout_ns, FutexScope::shared);
    cancel();
  }
  // True if somebody was asleep, or about to be.
  bool notify() {
    news_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return false;
    futex_wake_all(news_, FutexScope::shared);
    return true;
  }

 private:
  std::atomic<uint32_t> news_{0};
  // A process that dies in its sleep leaves its count behind: then notify() makes a call too many, no more.
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace byteps
