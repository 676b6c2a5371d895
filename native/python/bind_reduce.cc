// The sums of a server and the checksum of frames, for tests that compare them with NumPy.
//
// Arrays come as addresses, as everywhere between Python and the core. The caller keeps them alive and
// vouches for their length; the GIL is released while their bytes are worked on.
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "python/bind.h"
#include "reduce/sum.h"

namespace nb = nanobind;

namespace byteps {
namespace {

DType checked_dtype(int number) {
  if (number < 0 || number > 255 || !valid(static_cast<uint8_t>(number))) {
    throw nb::value_error(("unknown dtype number " + std::to_string(number) + ": expected 0 to 7").c_str());
  }
  return static_cast<DType>(number);
}

void check_divisor(uint32_t divisor) {
  if (divisor == 0) throw nb::value_error("the divisor of an average must be at least 1, not 0");
}

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

void reduce_add(int number, uintptr_t acc, uintptr_t src, size_t n) {
  const DType dtype = checked_dtype(number);
  const nb::gil_scoped_release release;
  add(dtype, at(acc), at(src), n);
}

void reduce_average(int number, uintptr_t data, size_t n, uint32_t divisor) {
  const DType dtype = checked_dtype(number);
  check_divisor(divisor);
  const nb::gil_scoped_release release;
  average(dtype, at(data), n, divisor);
}

// Three or more half contributions: summed in float32, rounded once.
void sum_wide(DType dtype, const std::vector<uintptr_t>& sources, void* dst, size_t n, uint32_t divisor) {
  std::vector<float> wide(n);
  widen(dtype, wide.data(), at(sources[0]), n);
  for (size_t i = 1; i < sources.size(); ++i) add_widened(dtype, wide.data(), at(sources[i]), n);
  if (divisor > 1) {
    narrow_average(dtype, dst, wide.data(), n, divisor);
  } else {
    narrow(dtype, dst, wide.data(), n);
  }
}

void sum_narrow(DType dtype, const std::vector<uintptr_t>& sources, void* dst, size_t n, uint32_t divisor) {
  if (n > 0) std::memcpy(dst, at(sources[0]), n * size_of(dtype));
  for (size_t i = 1; i + 1 < sources.size(); ++i) add(dtype, dst, at(sources[i]), n);
  if (sources.size() == 1) {
    if (divisor > 1) average(dtype, dst, n, divisor);
  } else if (divisor > 1) {
    add_average(dtype, dst, at(sources.back()), n, divisor);
  } else {
    add(dtype, dst, at(sources.back()), n);
  }
}

// What a shard does to the contributions of one round, in rank order. dst is none of the sources.
void reduce_sum_contributions(int number, const std::vector<uintptr_t>& sources, uintptr_t dst, size_t n,
                              uint32_t divisor) {
  const DType dtype = checked_dtype(number);
  check_divisor(divisor);
  if (sources.empty()) throw nb::value_error("no contributions: expected at least one address");
  const nb::gil_scoped_release release;
  if (is_half(dtype) && sources.size() > 2) {
    sum_wide(dtype, sources, at(dst), n, divisor);
  } else {
    sum_narrow(dtype, sources, at(dst), n, divisor);
  }
}

}  // namespace

void bind_reduce(nb::module_& m) {
  m.def("reduce_add", &reduce_add, nb::arg("dtype"), nb::arg("acc"), nb::arg("src"), nb::arg("n"));
  m.def("reduce_average", &reduce_average, nb::arg("dtype"), nb::arg("data"), nb::arg("n"),
        nb::arg("divisor"));
  m.def("reduce_sum_contributions", &reduce_sum_contributions, nb::arg("dtype"), nb::arg("sources"),
        nb::arg("dst"), nb::arg("n"), nb::arg("divisor"));
  m.def(
      "crc32c", [](const nb::bytes& data, uint32_t seed) { return crc32c(data.c_str(), data.size(), seed); },
      nb::arg("data"), nb::arg("seed") = 0);
}

}  // namespace byteps
