// Monotonic time, in one unit everywhere, and the clocks that tell it.
#pragma once

#include <ctime>

#include <cstdint>
#include <string>

namespace byteps {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

// This machine's, for threads that really wait. Worker, aggregator and liveness may not ask it: they are
// given a clock (base/runtime.h), and tests/unit/test_given_time.py looks.
inline int64_t machine_now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * kNanosecondsPerSecond + t.tv_nsec;
}

// A value: this machine's clock, or a time that somebody else makes and that outlives it. Not an interface,
// because it is asked for every piece: a branch that is always the same costs nothing beside a system call.
class Clock {
 public:
  Clock() = default;
  explicit Clock(const int64_t& made_ns) : made_ns_(&made_ns) {}
  int64_t now_ns() const { return made_ns_ ? *made_ns_ : machine_now_ns(); }

 private:
  const int64_t* made_ns_ = nullptr;
};

// For people, with one decimal: "10.2".
inline std::string seconds_text(int64_t ns) {
  const int64_t tenths = ns / (kNanosecondsPerSecond / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

inline int64_t seconds_to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace byteps
