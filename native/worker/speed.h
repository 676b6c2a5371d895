// Bytes per second over the last seconds, from any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace byteps {

class SpeedMeter {
 public:
  static constexpr int64_t kWindowS = 10;

  void add(uint64_t bytes, int64_t now) {
    std::lock_guard lock(mutex_);
    const int64_t second = now / kNanosecondsPerSecond;
    if (first_ < 0) first_ = second;
    Slot& slot = slots_[static_cast<size_t>(second % kSlots)];
    if (slot.second != second) slot = {second, 0};
    slot.bytes += bytes;
  }

  double bytes_per_s(int64_t now) const {
    std::lock_guard lock(mutex_);
    if (first_ < 0) return 0;
    const int64_t second = now / kNanosecondsPerSecond;
    uint64_t bytes = 0;
    for (const Slot& slot : slots_) {
      if (slot.second > second - kWindowS && slot.second <= second) bytes += slot.bytes;
    }
    return static_cast<double>(bytes) /
           static_cast<double>(std::clamp<int64_t>(second - first_ + 1, 1, kWindowS));
  }

 private:
  static constexpr int64_t kSlots = 16;
  struct Slot {
    int64_t second = -1;
    uint64_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::array<Slot, kSlots> slots_{};
  int64_t first_ = -1;
};

}  // namespace byteps
