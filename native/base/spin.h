// Looking again and again for a short time before going to sleep: a thread that sleeps and is woken loses
// some ten microseconds, several times what summing a small tensor takes.
//
// It pays where the other side is about to be there, and has a core of its own to come from. Both are learnt:
// a wait that spins in vain counts against the next ones, so that ranks that compute for milliseconds between
// two sums, or share a core, soon sleep at once, and only try again now and then.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace byteps {

inline void relax_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether the next wait should spin. Pure; any thread.
class SpinScore {
 public:
  static constexpr int kMost = 8;
  static constexpr int kLoss = 2;            // one wait in vain outweighs two that paid
  static constexpr uint32_t kTryAgain = 32;  // of so many waits without, one spins to see whether it pays now

  bool worth() {
    if (score_.load(std::memory_order_relaxed) > 0) return true;
    return waits_.fetch_add(1, std::memory_order_relaxed) % kTryAgain == kTryAgain - 1;
  }
  void spun(bool paid) {
    const int now = score_.load(std::memory_order_relaxed) + (paid ? 1 : -kLoss);
    score_.store(now < 0 ? 0 : now > kMost ? kMost : now, std::memory_order_relaxed);
  }

 private:
  std::atomic<int> score_{kMost};
  std::atomic<uint32_t> waits_{0};
};

// True: it was so within this time.
template <class News>
bool spin_until(int64_t most_ns, News news) {
  constexpr int kLooksPerGlance = 16;  // at the clock, which takes as long as many looks
  for (const int64_t end = machine_now_ns() + most_ns;;) {
    for (int look = 0; look < kLooksPerGlance; ++look) {
      if (news()) return true;
      relax_core();
    }
    if (machine_now_ns() >= end) return false;
  }
}

}  // namespace byteps
