// The element types that can be summed, with the numbers they have on the wire and in Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace byteps {

// Part of the protocol: never renumber. The kernel table in sum.cc is indexed by these values.
enum class DType : uint8_t { f32 = 0, f64 = 1, f16 = 2, u8 = 3, i32 = 4, i8 = 5, i64 = 6, bf16 = 7 };

inline constexpr size_t kDTypeCount = 8;

inline constexpr size_t index_of(DType dtype) { return static_cast<size_t>(dtype); }

// A number from a peer or from Python becomes a DType only after this check; every function below and every
// kernel relies on it.
inline constexpr bool valid(uint8_t number) { return number < kDTypeCount; }

inline constexpr size_t size_of(DType dtype) {
  constexpr std::array<size_t, kDTypeCount> bytes = {4, 8, 2, 1, 4, 1, 8, 2};
  return bytes[index_of(dtype)];
}

// The names that NumPy and the frameworks use, for error messages.
inline constexpr const char* name_of(DType dtype) {
  constexpr std::array<const char*, kDTypeCount> names = {"float32", "float64", "float16", "uint8",
                                                          "int32",   "int8",    "int64",   "bfloat16"};
  return names[index_of(dtype)];
}

// Half types are summed in float32 and rounded once, so they need a float accumulator.
inline constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

inline constexpr bool is_float(DType dtype) {
  return is_half(dtype) || dtype == DType::f32 || dtype == DType::f64;
}

}  // namespace byteps
