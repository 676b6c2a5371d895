// The best kernels give the bits of the generic ones, whatever the bytes, the length and the divisor.
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "reduce/sum.h"
#include "tests/reduce_samples.h"

using namespace byteps;
using namespace byteps::samples;

namespace {

void require_equal(DType dtype, const char* kernel, const Bytes& a, const Bytes& b) {
  const size_t n = a.size() / size_of(dtype);
  const size_t at = first_difference(dtype, a.data(), b.data(), n);
  if (at == n) return;
  std::cerr << kernel << " of " << name_of(dtype) << ": element " << at << " of " << n << " differs\n";
  std::abort();
}

// Five bytes choose dtype and divisor, the rest is cut into two spans.
void compare(DType dtype, uint32_t divisor, const uint8_t* data, size_t size) {
  const size_t n = size / 2 / size_of(dtype), bytes = n * size_of(dtype);
  const Bytes first(data, data + bytes);
  const uint8_t* second = data + bytes;
  const Kernels &generic = generic_kernels()[dtype], &best = best_kernels()[dtype];

  Bytes a = first, b = first;
  generic.add(a.data(), second, n), best.add(b.data(), second, n);
  require_equal(dtype, "add", a, b);
  a = first, b = first;
  generic.add_average(a.data(), second, n, divisor), best.add_average(b.data(), second, n, divisor);
  require_equal(dtype, "add_average", a, b);
  a = first, b = first;
  generic.average(a.data(), n, divisor), best.average(b.data(), n, divisor);
  require_equal(dtype, "average", a, b);
  if (!is_half(dtype)) return;

  std::vector<float> wide_a(n), wide_b(n);
  generic.widen(wide_a.data(), first.data(), n), best.widen(wide_b.data(), first.data(), n);
  generic.add_widened(wide_a.data(), second, n), best.add_widened(wide_b.data(), second, n);
  generic.narrow_average(a.data(), wide_a.data(), n, divisor),
      best.narrow_average(b.data(), wide_b.data(), n, divisor);
  require_equal(dtype, "narrow_average", a, b);

  std::vector<float> any(bytes / sizeof(float));
  if (!any.empty()) std::memcpy(any.data(), first.data(), any.size() * sizeof(float));
  a.resize(any.size() * 2), b.resize(any.size() * 2);
  generic.narrow(a.data(), any.data(), any.size()), best.narrow(b.data(), any.data(), any.size());
  require_equal(dtype, "narrow", a, b);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 5) return 0;
  uint32_t divisor;
  std::memcpy(&divisor, data + 1, sizeof divisor);
  compare(static_cast<DType>(data[0] % kDTypeCount), divisor == 0 ? 1 : divisor, data + 5, size - 5);
  return 0;
}
