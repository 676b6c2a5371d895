// Input bytes for the tests of the reduce kernels, and the comparison of their results.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "reduce/dtype.h"
#include "reduce/half.h"

namespace byteps::samples {

using Bytes = std::vector<uint8_t>;

inline constexpr DType kAll[] = {DType::f32, DType::f64, DType::f16, DType::u8,
                                 DType::i32, DType::i8,  DType::i64, DType::bf16};
inline constexpr DType kHalves[] = {DType::f16, DType::bf16};
inline constexpr uint32_t kDivisors[] = {1, 2, 3, 7, 10, 127, 128, 255, 256, 65537, 0x7FFFFFFF, 0xFFFFFFFF};

// The bit patterns at which arithmetic goes wrong, for any type of this width: zeros, denormals, one, the
// largest finite values, infinities, quiet and signalling NaNs of the float types; the limits of the integer
// types.
inline std::vector<uint64_t> awkward(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00,
              0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01};
    case DType::bf16:
      return {0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80,
              0xBF80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x7F81};
    case DType::f32:
      return {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000,
              0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001};
    case DType::f64:
      return {0,
              uint64_t{1} << 63,
              1,
              (uint64_t{1} << 63) | 1,
              0x000FFFFFFFFFFFFF,
              0x0010000000000000,
              0x3FF0000000000000,
              0x7FEFFFFFFFFFFFFF,
              0x7FF0000000000000,
              0xFFF0000000000000,
              0x7FF8000000000000,
              0x7FF0000000000001};
    default: {
      const uint64_t top = uint64_t{1} << (8 * size_of(dtype) - 1);
      return {0, 1, 2, ~uint64_t{0}, top, top - 1, top + 1, 100, ~uint64_t{99}};
    }
  }
}

// n elements: a quarter awkward ones, the rest any bits at all. The same seed gives the same bytes
// everywhere.
inline Bytes elements(DType dtype, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed * 8 + index_of(dtype));
  const auto hard = awkward(dtype);
  const size_t size = size_of(dtype);
  Bytes bytes(n * size);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t value = random() % 4 == 0 ? hard[random() % hard.size()] : random();
    std::memcpy(bytes.data() + i * size, &value, size);  // little endian: the low bytes
  }
  return bytes;
}

// Ordinary float32 values and awkward ones, for the accumulators of half types.
inline std::vector<float> floats(size_t n, uint64_t seed) {
  const Bytes bytes = elements(DType::f32, n, seed);
  std::vector<float> values(n);
  if (n > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  std::mt19937_64 random(seed);
  // Random bits are mostly far outside of what a half type can hold: bring half of them near 1.
  for (auto& value : values) {
    if (random() % 2 == 0)
      value = std::ldexp(static_cast<float>(random() % (1 << 24)), static_cast<int>(random() % 40) - 50);
  }
  return values;
}

template <class T>
T get(const void* base, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

inline bool is_nan(DType dtype, const void* base, size_t i) {
  switch (dtype) {
    case DType::f32:
      return std::isnan(get<float>(base, i));
    case DType::f64:
      return std::isnan(get<double>(base, i));
    case DType::f16:
      return std::isnan(f16_to_f32(get<uint16_t>(base, i)));
    case DType::bf16:
      return std::isnan(bf16_to_f32(get<uint16_t>(base, i)));
    default:
      return false;
  }
}

// The index of the first element whose bits differ (a NaN equals any NaN), or n.
inline size_t first_difference(DType dtype, const void* a, const void* b, size_t n) {
  const size_t size = size_of(dtype);
  for (size_t i = 0; i < n; ++i) {
    if (std::memcmp(static_cast<const char*>(a) + i * size, static_cast<const char*>(b) + i * size, size) ==
        0)
      continue;
    if (!is_nan(dtype, a, i) || !is_nan(dtype, b, i)) return i;
  }
  return n;
}

}  // namespace byteps::samples
