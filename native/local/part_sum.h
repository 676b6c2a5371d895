// Sums one part of all ranks' contributions, in rank order, and brings the result to all of them.
#pragma once

#include "base/tuning.h"
#include "local/group_memory.h"
#include "local/slot.h"
#include "reduce/dtype.h"

namespace byteps {

struct Part {
  uint64_t offset;  // bytes, in the tensor
  size_t bytes;     // whole elements, at most tuning::kPartBytes
};

class PartSum {
 public:
  // divisor 1: a sum.
  PartSum(const GroupMemory& memory, const SlotView& slot, DType dtype, uint32_t divisor)
      : memory_(memory), slot_(slot), dtype_(dtype), divisor_(divisor) {}

  // All of it: the result is in every rank's memory. False if a peer's memory cannot be touched: see gone().
  bool reduce(const Part& part) const;
  // The sum, or the root's bytes, in this rank's own destination.
  bool gather(const Part& part) const;
  // Of a half type: the sum in float32, not rounded, to a place of the caller's.
  bool gather_wide(const Part& part, float* sum) const;
  // This rank's destination to the others'.
  bool publish(const Part& part) const;
  // The local rank whose memory could not be touched.
  uint32_t gone() const { return gone_; }

 private:
  bool read(std::byte* to, uint32_t rank, const Part& part) const;
  // Where a sum can be made without a copy of its own: in a destination, or in `scratch` if there is none.
  std::byte* place_for_sum(const Part& part, bool own_only, std::byte* scratch) const;
  bool sum_into(const Part& part, std::byte* target) const;
  bool sum_halves_into(const Part& part, std::byte* target) const;
  bool deliver(const Part& part, const std::byte* result) const;
  const std::byte* source(uint32_t rank, const Part& part, std::byte* scratch) const;
  std::byte* destination(uint32_t rank, const Part& part) const;

  const GroupMemory& memory_;
  const SlotView& slot_;
  const DType dtype_;
  const uint32_t divisor_;
  mutable uint32_t gone_ = 0;
};

}  // namespace byteps
