// AVX2 kernels: the loops of loops.h compiled for 32-byte registers, and hand-written ones for the half
// types.
//
// Only functions with the target attribute may use the instructions, and nothing is compiled with -march: the
// rest of the library, even the rest of this file, must run on any x86-64 processor. FMA is left out of the
// target on purpose: no kernel needs it, and without it no compiler can fuse what must be rounded twice.
#include "reduce/avx2.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include "reduce/loops.h"

#define BYTEPS_AVX2 __attribute__((target("avx2,f16c")))
#define BYTEPS_AVX2_INLINE __attribute__((target("avx2,f16c"), always_inline)) static inline

namespace byteps {

namespace {

template <class E>
struct Plain {
  static constexpr Kernels kernels() {
    return {add, average, add_average, nullptr, nullptr, nullptr, nullptr};
  }
  BYTEPS_AVX2 static void add(void* acc, const void* src, size_t n) { loops::add<E>(acc, src, n); }
  BYTEPS_AVX2 static void average(void* data, size_t n, uint32_t divisor) {
    loops::average<E>(data, n, divisor);
  }
  BYTEPS_AVX2 static void add_average(void* acc, const void* src, size_t n, uint32_t divisor) {
    loops::add_average<E>(acc, src, n, divisor);
  }
};

// How a half type moves between memory and float32 lanes: eight elements in their order, or sixteen in
// whatever order is cheapest, for kernels that put them back the same way.

struct Sixteen {
  __m256 a, b;
};

BYTEPS_AVX2_INLINE __m128i* at8(void* base, size_t i) {
  return reinterpret_cast<__m128i*>(static_cast<char*>(base) + i * sizeof(uint16_t));
}
BYTEPS_AVX2_INLINE const __m128i* at8(const void* base, size_t i) {
  return reinterpret_cast<const __m128i*>(static_cast<const char*>(base) + i * sizeof(uint16_t));
}

struct Float16Lanes {
  using Element = loops::Float16;
  BYTEPS_AVX2_INLINE __m256 load8(const void* base, size_t i) {
    return _mm256_cvtph_ps(_mm_loadu_si128(at8(base, i)));
  }
  BYTEPS_AVX2_INLINE void store8(void* base, size_t i, __m256 value) {
    _mm_storeu_si128(at8(base, i), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
  BYTEPS_AVX2_INLINE Sixteen load16(const void* base, size_t i) {
    return {load8(base, i), load8(base, i + 8)};
  }
  BYTEPS_AVX2_INLINE void store16(void* base, size_t i, Sixteen values) {
    store8(base, i, values.a);
    store8(base, i + 8, values.b);
  }
};

struct BFloat16Lanes {
  using Element = loops::BFloat16;

  // f32_to_bf16 of half.h in every lane; the result is in the upper sixteen bits, what is below is rubbish.
  BYTEPS_AVX2_INLINE __m256i rounded(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    return _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
  }
  BYTEPS_AVX2_INLINE __m256 load8(const void* base, size_t i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at8(base, i))), 16));
  }
  BYTEPS_AVX2_INLINE void store8(void* base, size_t i, __m256 value) {
    const __m256i result = _mm256_srli_epi32(rounded(value), 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
    _mm_storeu_si128(at8(base, i), packed);
  }
  // Elements of even and of odd index: each already lies in the 32 bits that it needs, nothing has to be
  // unpacked.
  BYTEPS_AVX2_INLINE Sixteen load16(const void* base, size_t i) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at8(base, i)));
    const __m256i odd = _mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)), _mm256_castsi256_ps(odd)};
  }
  BYTEPS_AVX2_INLINE void store16(void* base, size_t i, Sixteen values) {
    const __m256i even = _mm256_srli_epi32(rounded(values.a), 16);
    const __m256i both = _mm256_blend_epi16(even, rounded(values.b), 0xAA);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at8(base, i)), both);
  }
};

BYTEPS_AVX2_INLINE Sixteen sum(Sixteen x, Sixteen y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
BYTEPS_AVX2_INLINE Sixteen quotient(Sixteen x, __m256 by) {
  return {_mm256_div_ps(x.a, by), _mm256_div_ps(x.b, by)};
}

template <class L>
struct Half {
  using E = typename L::Element;

  static constexpr Kernels kernels() {
    return {add, average, add_average, widen, add_widened, narrow, narrow_average};
  }

  BYTEPS_AVX2 static void add(void* acc, const void* src, size_t n) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16) L::store16(acc, i, sum(L::load16(acc, i), L::load16(src, i)));
    loops::add<E>(acc, src, n, i);
  }

  BYTEPS_AVX2 static void average(void* data, size_t n, uint32_t divisor) {
    const __m256 by = _mm256_set1_ps(static_cast<float>(divisor));
    size_t i = 0;
    for (; i + 16 <= n; i += 16) L::store16(data, i, quotient(L::load16(data, i), by));
    loops::average<E>(data, n, divisor, i);
  }

  BYTEPS_AVX2 static void add_average(void* acc, const void* src, size_t n, uint32_t divisor) {
    const __m256 by = _mm256_set1_ps(static_cast<float>(divisor));
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
      L::store16(acc, i, quotient(sum(L::load16(acc, i), L::load16(src, i)), by));
    }
    loops::add_average<E>(acc, src, n, divisor, i);
  }

  BYTEPS_AVX2 static void widen(float* acc, const void* src, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(acc + i, L::load8(src, i));
    loops::widen<E>(acc, src, n, i);
  }

  BYTEPS_AVX2 static void add_widened(float* acc, const void* src, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
      _mm256_storeu_ps(acc + i, _mm256_add_ps(_mm256_loadu_ps(acc + i), L::load8(src, i)));
    }
    loops::add_widened<E>(acc, src, n, i);
  }

  BYTEPS_AVX2 static void narrow(void* dst, const float* acc, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) L::store8(dst, i, _mm256_loadu_ps(acc + i));
    loops::narrow<E>(dst, acc, n, i);
  }

  BYTEPS_AVX2 static void narrow_average(void* dst, const float* acc, size_t n, uint32_t divisor) {
    const __m256 by = _mm256_set1_ps(static_cast<float>(divisor));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) L::store8(dst, i, _mm256_div_ps(_mm256_loadu_ps(acc + i), by));
    loops::narrow_average<E>(dst, acc, n, divisor, i);
  }
};

constexpr KernelSet kAvx2 = {
    "avx2", loops::table<Plain>(Half<Float16Lanes>::kernels(), Half<BFloat16Lanes>::kernels())};

// __builtin_cpu_supports also asks whether the operating system saves the wide registers; it does not know
// F16C in every compiler we support.
bool has_avx2_and_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx & bit_F16C) != 0;
}

}  // namespace

const KernelSet* avx2_kernels() { return has_avx2_and_f16c() ? &kAvx2 : nullptr; }

}  // namespace byteps

#else

namespace byteps {

const KernelSet* avx2_kernels() { return nullptr; }

}  // namespace byteps

#endif
