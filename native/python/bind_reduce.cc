// The sums of a server, for tests that compare them with NumPy.
#include <nanobind/stl/vector.h>

#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "python/bind.h"
#include "reduce/sum.h"

namespace nb = nanobind;

namespace byteps {
namespace {

DType checked(uint8_t dtype) {
  if (!valid(dtype)) throw nb::value_error("unknown dtype");
  return static_cast<DType>(dtype);
}

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

// What a shard does to the contributions of a round: rank order, halves of three and more in float32.
void sum_contributions(uint8_t number, const std::vector<uintptr_t>& sources, uintptr_t dst, size_t n, uint32_t divisor) {
  const DType dtype = checked(number);
  if (sources.empty()) throw nb::value_error("nothing to sum");
  if (is_half(dtype) && sources.size() > 2) {
    std::vector<float> wide(n);
    widen(dtype, wide.data(), pointer(sources[0]), n);
    for (size_t i = 1; i < sources.size(); ++i) add_widened(dtype, wide.data(), pointer(sources[i]), n);
    if (divisor > 1) {
      narrow_average(dtype, pointer(dst), wide.data(), n, divisor);
    } else {
      narrow(dtype, pointer(dst), wide.data(), n);
    }
    return;
  }
  std::memmove(pointer(dst), pointer(sources[0]), n * size_of(dtype));
  for (size_t i = 1; i < sources.size(); ++i) {
    if (divisor > 1 && i + 1 == sources.size()) {
      add_average(dtype, pointer(dst), pointer(sources[i]), n, divisor);
    } else {
      add(dtype, pointer(dst), pointer(sources[i]), n);
    }
  }
}

}  // namespace

void bind_reduce(nb::module_& m) {
  m.def("reduce_add", [](uint8_t dtype, uintptr_t acc, uintptr_t src, size_t n) {
    add(checked(dtype), pointer(acc), pointer(src), n);
  }, nb::arg("dtype"), nb::arg("acc"), nb::arg("src"), nb::arg("n"));
  m.def("reduce_average", [](uint8_t dtype, uintptr_t data, size_t n, uint32_t divisor) {
    average(checked(dtype), pointer(data), n, divisor);
  }, nb::arg("dtype"), nb::arg("data"), nb::arg("n"), nb::arg("divisor"));
  m.def("reduce_sum_contributions", &sum_contributions, nb::arg("dtype"), nb::arg("sources"), nb::arg("dst"),
        nb::arg("n"), nb::arg("divisor"));
  m.def("crc32c", [](const nb::bytes& data, uint32_t seed) { return crc32c(data.c_str(), data.size(), seed); },
        nb::arg("data"), nb::arg("seed") = 0);
}

}  // namespace byteps
