// Finding the k elements of largest magnitude, exactly, in little more than one walk through them.
//
// A sample says what magnitude about twice k elements reach; one walk collects those, and the k largest are
// chosen among them. How good the sample was changes how long that takes, never the result: when too few or
// too many were collected, every element is counted by its upper bits instead, which takes two walks more.
//
// Magnitudes are compared as the bits of |x|, which order as the numbers do. All NaNs are one number above
// infinity. Of equal magnitudes the lower index is kept.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "compress/kernels.h"

namespace byteps::compress {

// Keeps those of `count` candidates, in their order, that are the k largest: found[0] to found[k - 1].
// size_at gives the magnitude of a candidate by size_of; scratch has room for count. k is at most count.
constexpr uint32_t kNaNSize = 0x7F800001;
inline uint32_t size_of(float x) { return std::min(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu, kNaNSize); }

template <class SizeAt>
void keep_largest(uint32_t* found, size_t count, size_t k, const SizeAt& size_at, uint32_t* scratch) {
  if (count == k) return;
  for (size_t j = 0; j < count; ++j) scratch[j] = size_at(found[j]);
  uint32_t* const kth = scratch + k - 1;
  std::nth_element(scratch, kth, scratch + count, std::greater<>());
  const uint32_t limit = *kth;
  // Elements equal to the limit fill what the larger ones leave, the first ones first.
  size_t equal = k - static_cast<size_t>(std::count_if(scratch, kth, [&](uint32_t s) { return s > limit; }));
  for (size_t j = 0, kept = 0; kept < k; ++j) {
    const uint32_t size = size_at(found[j]);
    if (size < limit || (size == limit && equal == 0)) continue;
    if (size == limit) --equal;
    found[kept++] = found[j];
  }
}

class Select {
 public:
  // k is at least 1 and at most n.
  Select(size_t n, size_t k, const Kernels& kernels);

  // The indices of the k largest in ascending order, valid until the next call.
  const uint32_t* largest(const float* x);
  // The same of p = g + c * error, which is left in error.
  const uint32_t* largest_with_feedback(const float* g, float c, float* error);

 private:
  template <class At>
  uint32_t estimate(const At& at);
  bool collect(const float* x, size_t begin, size_t count, uint32_t least);
  bool choose(const float* x);
  void count_and_collect(const float* x);
  uint32_t kth_by_counting(const float* x);

  const size_t n_, k_;
  const Kernels& kernels_;
  size_t collected_ = 0;
  std::vector<uint32_t> found_;   // candidates, then what was chosen
  std::vector<uint32_t> sizes_;   // magnitudes of candidates, or of the sample
  std::vector<uint32_t> counts_;  // by the upper or the lower bits of a magnitude
};

}  // namespace byteps::compress
