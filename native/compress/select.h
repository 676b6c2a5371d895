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
#include <vector>

#include "compress/kernels.h"

namespace byteps::compress {

constexpr uint32_t kNaNSize = 0x7F800001;
inline uint32_t size_of(float x) { return std::min(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu, kNaNSize); }

// Elements and where they are, ascending.
struct Elements {
  std::vector<uint32_t> index;
  std::vector<float> value;
  explicit Elements(size_t room) : index(room), value(room) {}
};

// Keeps the k largest of the first `count` elements, in their order. k is at most count; scratch has room for
// count.
void keep_largest(Elements& elements, size_t count, size_t k, uint32_t* scratch);

class Select {
 public:
  // k is at least 1 and at most n.
  Select(size_t n, size_t k, const Kernels& kernels);

  // The first k are the k largest; valid until the next call.
  const Elements& largest(const float* x);
  // The same of p = a * g + c * error, which is left in error.
  const Elements& largest_with_feedback(const float* g, float a, float c, float* error);

 private:
  template <class At>
  uint32_t estimate(const At& at);
  bool collect(const float* x, size_t begin, size_t count, uint32_t least);
  bool collect_all(const float* x, uint32_t least);
  bool choose();
  void count_and_collect(const float* x);
  uint32_t kth_by_counting(const float* x);

  const size_t n_, k_;
  const Kernels& kernels_;
  size_t collected_ = 0;
  Elements found_;                // candidates, then what was chosen
  std::vector<uint32_t> sizes_;   // magnitudes of candidates, or of the sample
  std::vector<uint32_t> counts_;  // by the upper or the lower bits of a magnitude
};

}  // namespace byteps::compress
