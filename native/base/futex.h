// Sleeping until a word changes: private to a process, or in memory that several processes share.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace byteps {

enum class FutexScope { process, shared };

// Returns when woken, when the word is not `expected`, after the time-out, or for no reason: look again.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns,
                       FutexScope scope = FutexScope::process) {
  const timespec timeout{timeout_ns / kNanosecondsPerSecond, timeout_ns % kNanosecondsPerSecond};
  const int operation = scope == FutexScope::process ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, expected, &timeout, nullptr, 0);
}

inline void futex_wake_all(std::atomic<uint32_t>& word, FutexScope scope = FutexScope::process) {
  const int operation = scope == FutexScope::process ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace byteps
