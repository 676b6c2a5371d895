// The kernels as loops over one element type, written once and compiled once per instruction set.
//
// Private to native/reduce. Every function here is inlined by force into a caller that may carry a target
// attribute: the same source becomes SSE2, NEON or AVX2 code by the compiler's own vectoriser, and gives the
// same bits in all of them because each step is a correctly rounded operation on one element. There is no
// product in any loop, so there is nothing that a compiler could contract into a fused multiply-add.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduce/half.h"
#include "reduce/sum.h"

#ifdef __FAST_MATH__
#error "-ffast-math changes the bits of sums; the same bits on every machine are a promise of the protocol"
#endif

#define BYTEPS_INLINE [[gnu::always_inline]] inline

namespace byteps::loops {

template <class T>
BYTEPS_INLINE T load(const void* base, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
BYTEPS_INLINE void store(void* base, size_t i, T value) {
  std::memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

// An element type says how it is stored, what it is computed in, and what it is divided by.

template <class T>
struct Float {
  using Stored = T;
  using Divisor = T;
  BYTEPS_INLINE static T up(T value) { return value; }
  BYTEPS_INLINE static T down(T value) { return value; }
  BYTEPS_INLINE static T sum(T a, T b) { return a + b; }
  BYTEPS_INLINE static T quotient(T value, Divisor divisor) { return value / divisor; }
};

// D is the type in which the division is done. Floating point division of small integers is vectorised and,
// cut to an integer, exact: a quotient that is not whole is at least 1/divisor away from the next whole
// number, which is more than the rounding of a type whose mantissa is wider than the dividend.
template <class T, class D>
struct Integer {
  using Stored = T;
  using Divisor = D;
  using Unsigned = std::make_unsigned_t<T>;
  BYTEPS_INLINE static T up(T value) { return value; }
  BYTEPS_INLINE static T down(T value) { return value; }
  BYTEPS_INLINE static T sum(T a, T b) {
    return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  }
  BYTEPS_INLINE static T quotient(T value, Divisor divisor) {
    return static_cast<T>(static_cast<D>(value) / divisor);
  }
};

struct HalfSums {
  using Stored = uint16_t;
  using Divisor = float;
  BYTEPS_INLINE static float sum(float a, float b) { return a + b; }
  BYTEPS_INLINE static float quotient(float value, Divisor divisor) { return value / divisor; }
};

struct Float16 : HalfSums {
#if defined(__aarch64__)
  // Every aarch64 processor converts float16 by itself, and the compiler vectorises that.
  BYTEPS_INLINE static float up(uint16_t value) { return static_cast<float>(std::bit_cast<__fp16>(value)); }
  BYTEPS_INLINE static uint16_t down(float value) {
    return std::bit_cast<uint16_t>(static_cast<__fp16>(value));
  }
#else
  BYTEPS_INLINE static float up(uint16_t value) { return f16_to_f32(value); }
  BYTEPS_INLINE static uint16_t down(float value) { return f32_to_f16(value); }
#endif
};

struct BFloat16 : HalfSums {
  BYTEPS_INLINE static float up(uint16_t value) { return bf16_to_f32(value); }
  BYTEPS_INLINE static uint16_t down(float value) { return f32_to_bf16(value); }
};

// Each loop takes the index to begin at, so that a hand-written kernel can leave its last few elements to it.

template <class E>
BYTEPS_INLINE void add(void* acc, const void* src, size_t n, size_t begin = 0) {
  using S = typename E::Stored;
  for (size_t i = begin; i < n; ++i) {
    store<S>(acc, i, E::down(E::sum(E::up(load<S>(acc, i)), E::up(load<S>(src, i)))));
  }
}

template <class E>
BYTEPS_INLINE void average(void* data, size_t n, uint32_t divisor, size_t begin = 0) {
  using S = typename E::Stored;
  const auto by = static_cast<typename E::Divisor>(divisor);
  for (size_t i = begin; i < n; ++i) store<S>(data, i, E::down(E::quotient(E::up(load<S>(data, i)), by)));
}

template <class E>
BYTEPS_INLINE void add_average(void* acc, const void* src, size_t n, uint32_t divisor, size_t begin = 0) {
  using S = typename E::Stored;
  const auto by = static_cast<typename E::Divisor>(divisor);
  for (size_t i = begin; i < n; ++i) {
    store<S>(acc, i, E::down(E::quotient(E::sum(E::up(load<S>(acc, i)), E::up(load<S>(src, i))), by)));
  }
}

template <class E>
BYTEPS_INLINE void widen(float* acc, const void* src, size_t n, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) acc[i] = E::up(load<uint16_t>(src, i));
}

template <class E>
BYTEPS_INLINE void add_widened(float* acc, const void* src, size_t n, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) acc[i] = E::sum(acc[i], E::up(load<uint16_t>(src, i)));
}

template <class E>
BYTEPS_INLINE void narrow(void* dst, const float* acc, size_t n, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) store<uint16_t>(dst, i, E::down(acc[i]));
}

template <class E>
BYTEPS_INLINE void narrow_average(void* dst, const float* acc, size_t n, uint32_t divisor, size_t begin = 0) {
  const auto by = static_cast<float>(divisor);
  for (size_t i = begin; i < n; ++i) store<uint16_t>(dst, i, E::down(E::quotient(acc[i], by)));
}

// A table in the order of DType. The half types have more kernels, and their own way to make them.
template <template <class> class Plain>
constexpr std::array<Kernels, kDTypeCount> table(const Kernels& f16, const Kernels& bf16) {
  return {Plain<Float<float>>::kernels(),
          Plain<Float<double>>::kernels(),
          f16,
          Plain<Integer<uint8_t, float>>::kernels(),
          Plain<Integer<int32_t, double>>::kernels(),
          Plain<Integer<int8_t, float>>::kernels(),
          Plain<Integer<int64_t, int64_t>>::kernels(),
          bf16};
}

}  // namespace byteps::loops
