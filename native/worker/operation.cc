#include "worker/operation.h"

#include "base/clock.h"

namespace byteps {

Operation::Operation(std::shared_ptr<Tensor> tensor, const std::byte* src, std::byte* dst, int32_t priority,
                     uint16_t flags, uint32_t root)
    : tensor(std::move(tensor)),
      src(src),
      dst(dst),
      priority(priority),
      flags(flags),
      root(root),
      started_ns(now_ns()) {}

void Operation::note_missing(const std::string& who) {
  std::lock_guard lock(mutex_);
  missing_ = who;
}

std::string Operation::missing() const {
  std::lock_guard lock(mutex_);
  return missing_;
}

}  // namespace byteps
