// Monotonic time, in one unit everywhere.
#pragma once

#include <ctime>

#include <cstdint>
#include <string>

namespace byteps {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

inline int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * kNanosecondsPerSecond + t.tv_nsec;
}

// For people, with one decimal: "10.2".
inline std::string seconds_text(int64_t ns) {
  const int64_t tenths = ns / (kNanosecondsPerSecond / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

inline int64_t seconds_to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace byteps
