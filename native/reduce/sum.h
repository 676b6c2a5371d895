// Sums, averages and roundings of spans of elements: everything an aggregator does to the bytes of a tensor.
//
// Rules for every function here:
//   - n counts elements, not bytes. n = 0 is a no-op.
//   - void pointers need no alignment (a payload starts where the network left it); float pointers need
//   theirs.
//   - Spans are equal or apart, never half over each other.
//   - The bits of a result depend only on the bits that went in, not on the machine, the length or the place
//   in
//     the span. Only the payload of a NaN is not promised.
//   - Integer sums wrap around. Integer averages divide the wrapped sum and truncate toward zero, as C does.
//   - Float averages are IEEE divisions. A product with 1/divisor would be faster and off by one bit.
//   - divisor is at least 1.
//   - No state and no locks: any thread, as long as it owns the span that is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reduce/dtype.h"

namespace byteps {

// acc += src. For half types the result is round(float(acc) + float(src)): right for a sum of exactly two
// terms. More terms would round more than once: use the widened functions below.
void add(DType dtype, void* acc, const void* src, size_t n);

// data /= divisor
void average(DType dtype, void* data, size_t n, uint32_t divisor);

// acc = (acc + src) / divisor in one pass: the last contribution of an average. Half types are rounded once.
void add_average(DType dtype, void* acc, const void* src, size_t n, uint32_t divisor);

// Half types only. A sum of three or more terms lives in float32 (widen the first, add_widened the others)
// and is rounded once, at the end, by narrow or narrow_average.
void widen(DType half, float* acc, const void* src, size_t n);        // acc = float(src)
void add_widened(DType half, float* acc, const void* src, size_t n);  // acc += float(src)
void narrow(DType half, void* dst, const float* acc, size_t n);       // dst = half(acc)
void narrow_average(DType half, void* dst, const float* acc, size_t n,
                    uint32_t divisor);  // dst = half(acc / divisor)

// The kernels of one element type. Those of half types only are null for the others.
struct Kernels {
  void (*add)(void* acc, const void* src, size_t n);
  void (*average)(void* data, size_t n, uint32_t divisor);
  void (*add_average)(void* acc, const void* src, size_t n, uint32_t divisor);
  void (*widen)(float* acc, const void* src, size_t n);
  void (*add_widened)(float* acc, const void* src, size_t n);
  void (*narrow)(void* dst, const float* acc, size_t n);
  void (*narrow_average)(void* dst, const float* acc, size_t n, uint32_t divisor);
};

struct KernelSet {
  const char* name;
  std::array<Kernels, kDTypeCount> by_dtype;
  const Kernels& operator[](DType dtype) const { return by_dtype[index_of(dtype)]; }
};

// The functions above use best_kernels(), chosen once for this processor. Tests compare the two.
const KernelSet& generic_kernels();
const KernelSet& best_kernels();

}  // namespace byteps
