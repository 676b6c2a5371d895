// Monotonic time, in one unit everywhere.
#pragma once

#include <ctime>

#include <cstdint>

namespace byteps {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

inline int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * kNanosecondsPerSecond + t.tv_nsec;
}

inline int64_t seconds_to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace byteps
