// The kernels of kernels.h with AVX2; those of blocks are in avx2_blocks.cc.
#include "compress/kernels.h"

#if defined(__x86_64__)

#include <cstring>

#include "compress/avx2_lanes.h"
#include "compress/loops.h"

namespace byteps::compress {

namespace {

BYTEPS_AVX2 void feedback(const float* g, float a, float c, float* e, size_t n) {
  loops::feedback(g, a, c, e, n);
}
BYTEPS_AVX2 void subtract(const float* x, float* e, size_t n) { loops::subtract(x, e, n); }
BYTEPS_AVX2 void nesterov(float* m, float* g, float mu, size_t n) { loops::nesterov(m, g, mu, n); }
BYTEPS_AVX2 uint32_t max_bits(const float* x, size_t n) { return loops::max_bits(x, n); }

BYTEPS_AVX2_INLINE __m256 magnitude(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
// The sign bits of lanes below zero: -0.0 and NaN are not.
BYTEPS_AVX2_INLINE uint32_t below_zero(__m256 x) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)));
}
BYTEPS_AVX2_INLINE void store_bits(uint8_t* bits, size_t i, uint32_t word) {
  std::memcpy(bits + i / 8, &word, sizeof word);
}

BYTEPS_AVX2 void signs(const float* x, size_t n, uint8_t* bits) {
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    prefetch(x + i);
    uint32_t word = 0;
    for (uint32_t j = 0; j < 32; j += 8) word |= below_zero(_mm256_loadu_ps(x + i + j)) << j;
    store_bits(bits, i, word);
  }
  loops::signs(x, n, bits, i);
}

// Lanes 0-3, 4-7, 8-11 and 12-15 of Lanes in four registers.
struct WideLanes {
  __m256d sum[4];
  BYTEPS_AVX2_INLINE WideLanes load(const Lanes& lanes) {
    WideLanes wide;
    for (int j = 0; j < 4; ++j) wide.sum[j] = _mm256_loadu_pd(lanes.sum + 4 * j);
    return wide;
  }
  BYTEPS_AVX2_INLINE void store(const WideLanes& wide, Lanes& lanes) {
    for (int j = 0; j < 4; ++j) _mm256_storeu_pd(lanes.sum + 4 * j, wide.sum[j]);
  }
};
BYTEPS_AVX2_INLINE __m256d low_half(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
BYTEPS_AVX2_INLINE __m256d high_half(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

BYTEPS_AVX2 void signs_sum(const float* x, size_t n, uint8_t* bits, Lanes& lanes) {
  WideLanes wide = WideLanes::load(lanes);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    prefetch(x + i);
    uint32_t word = 0;
    for (uint32_t j = 0; j < 32; j += 8) {
      const __m256 values = _mm256_loadu_ps(x + i + j);
      word |= below_zero(values) << j;
      const __m256 size = magnitude(values);
      const uint32_t lane = j % 16 / 4;
      wide.sum[lane] = _mm256_add_pd(wide.sum[lane], low_half(size));
      wide.sum[lane + 1] = _mm256_add_pd(wide.sum[lane + 1], high_half(size));
    }
    store_bits(bits, i, word);
  }
  WideLanes::store(wide, lanes);
  loops::signs(x, n, bits, i);
  loops::sum_magnitudes(x, n, lanes, i);
}

BYTEPS_AVX2 void sum_squares(const float* x, size_t n, Lanes& lanes) {
  WideLanes wide = WideLanes::load(lanes);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (uint32_t j = 0; j < 16; j += 8) {
      const __m256 values = _mm256_loadu_ps(x + i + j);
      const __m256d low = low_half(values), high = high_half(values);
      wide.sum[j / 4] = _mm256_add_pd(wide.sum[j / 4], _mm256_mul_pd(low, low));
      wide.sum[j / 4 + 1] = _mm256_add_pd(wide.sum[j / 4 + 1], _mm256_mul_pd(high, high));
    }
  }
  WideLanes::store(wide, lanes);
  loops::sum_squares(x, n, lanes, i);
}

// Eight bits to eight sign bits: each lane shifts its own bit to the top.
BYTEPS_AVX2_INLINE __m256 sign_bits(uint8_t byte) {
  const __m256i places = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256i shifted = _mm256_sllv_epi32(_mm256_set1_epi32(byte), places);
  return _mm256_and_ps(_mm256_castsi256_ps(shifted), _mm256_set1_ps(-0.0f));
}

BYTEPS_AVX2 void expand_signs(const uint8_t* bits, size_t n, float s, float* out) {
  const __m256 scale = _mm256_set1_ps(s);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_xor_ps(scale, sign_bits(bits[i / 8])));
  loops::expand_signs(bits, n, s, out, i);
}

BYTEPS_AVX2 void add_signs(const uint8_t* bits, size_t n, float s, float* acc) {
  const __m256 scale = _mm256_set1_ps(s);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 value = _mm256_xor_ps(scale, sign_bits(bits[i / 8]));
    _mm256_storeu_ps(acc + i, _mm256_add_ps(_mm256_loadu_ps(acc + i), value));
  }
  loops::add_signs(bits, n, s, acc, i);
}

// Few elements are found: 32 are looked at together, and only a group with one in it is looked through.
BYTEPS_AVX2_INLINE size_t group_above(const float* x, __m256i limit, uint32_t first, uint32_t* index,
                                      float* value, size_t count) {
  prefetch(x);
  __m256i over[4];
  for (int j = 0; j < 4; ++j) {
    const __m256i bits = _mm256_castps_si256(magnitude(_mm256_loadu_ps(x + 8 * j)));
    over[j] = _mm256_cmpgt_epi32(bits, limit);
  }
  const __m256i any = _mm256_or_si256(_mm256_or_si256(over[0], over[1]), _mm256_or_si256(over[2], over[3]));
  if (_mm256_testz_si256(any, any)) return count;
  uint32_t mask = 0;
  for (int j = 0; j < 4; ++j) {
    mask |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(over[j]))) << (8 * j);
  }
  for (; mask != 0; mask &= mask - 1) {
    const auto at = static_cast<uint32_t>(std::countr_zero(mask));
    index[count] = first + at;
    value[count++] = x[at];
  }
  return count;
}

BYTEPS_AVX2 Kernels::Found above(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* index,
                                 float* value, size_t room) {
  size_t count = 0, i = 0;
  if (least == 0) return loops::above(x, n, least, first, index, value, room);
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(least - 1));
  for (; i + 32 <= n && room - count >= 32; i += 32) {
    count = group_above(x + i, limit, first + static_cast<uint32_t>(i), index, value, count);
  }
  return loops::above(x, n, least, first, index, value, room, i, count);
}

BYTEPS_AVX2 Kernels::FoundInFour above_in_four(const float* x, size_t quarter, uint32_t least,
                                               uint32_t* index, float* value, size_t room) {
  Kernels::FoundInFour found = {{}, true};
  if (least == 0) return loops::above_in_four(x, quarter, least, index, value, room);
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(least - 1));
  size_t i = 0;
  for (; i + 32 <= quarter; i += 32) {
    for (size_t s = 0; s < 4; ++s) {
      if (room - found.count[s] < 32) return {{}, false};
      const size_t at = s * quarter + i;
      found.count[s] = group_above(x + at, limit, static_cast<uint32_t>(at), index + s * room,
                                   value + s * room, found.count[s]);
    }
  }
  return loops::above_in_four(x, quarter, least, index, value, room, i, found);
}

// Stream::uniform in eight lanes.
BYTEPS_AVX2_INLINE __m256 uniform(const Stream& stream, __m256i product) {
  const __m256i bits = _mm256_srli_epi32(random_bits(stream, product), 8);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(0x1p-24f));
}

BYTEPS_AVX2_INLINE __m256i linear_level(__m256 ratio, __m256 u, __m256 count) {
  const __m256 y = _mm256_mul_ps(ratio, count), whole = _mm256_floor_ps(y);
  const __m256 up = _mm256_cmp_ps(u, _mm256_sub_ps(y, whole), _CMP_LT_OQ);
  return _mm256_sub_epi32(_mm256_cvttps_epi32(whole), _mm256_castps_si256(up));
}

BYTEPS_AVX2_INLINE __m256i natural_level(__m256 ratio, __m256 u, const Levels& levels) {
  const __m256i bits = _mm256_castps_si256(ratio), one = _mm256_set1_epi32(0x3F800000);
  const __m256i lower = _mm256_add_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(levels.count - 127));
  const __m256i mantissa = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x007FFFFF)), one);
  const __m256 above_level = _mm256_sub_ps(_mm256_castsi256_ps(mantissa), _mm256_castsi256_ps(one));
  const __m256 power = _mm256_castsi256_ps(_mm256_set1_epi32((levels.count - 1 + 127) << 23));
  const __m256 above_zero = _mm256_mul_ps(ratio, power);
  const __m256i lowest = _mm256_cmpgt_epi32(_mm256_set1_epi32(1), lower);
  const __m256 chance = _mm256_blendv_ps(above_level, above_zero, _mm256_castsi256_ps(lowest));
  const __m256 up = _mm256_cmp_ps(u, chance, _CMP_LT_OQ);
  return _mm256_sub_epi32(_mm256_andnot_si256(lowest, lower), _mm256_castps_si256(up));
}

BYTEPS_AVX2 void quantize(const float* x, size_t n, const Levels& given, const Stream& drawn, uint32_t first,
                          int32_t* q, uint8_t* nonzero) {
  const Levels levels = given;  // copies: as far as a compiler knows, what is written could be these
  const Stream stream = drawn;
  const __m256i stride = _mm256_set1_epi32(static_cast<int32_t>(8 * kIndexStep));
  __m256i product = index_products(first);
  const __m256 scale = _mm256_set1_ps(levels.scale), count = _mm256_set1_ps(static_cast<float>(levels.count));
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 values = _mm256_loadu_ps(x + i);
    const __m256 ratio = _mm256_div_ps(magnitude(values), scale), u = uniform(stream, product);
    product = _mm256_add_epi32(product, stride);
    const __m256i level = levels.natural ? natural_level(ratio, u, levels) : linear_level(ratio, u, count);
    const __m256i minus = _mm256_castps_si256(_mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_LT_OQ));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + i),
                        _mm256_sub_epi32(_mm256_xor_si256(level, minus), minus));
    const __m256i zero = _mm256_cmpeq_epi32(level, _mm256_setzero_si256());
    nonzero[i / 8] = static_cast<uint8_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(zero)));
  }
  loops::quantize(x, n, levels, stream, first, q, nonzero, i);
}

BYTEPS_AVX2_INLINE __m256 value_of(__m256i q, const Levels& levels, __m256 scale, __m256 count) {
  if (!levels.natural) return _mm256_mul_ps(scale, _mm256_div_ps(_mm256_cvtepi32_ps(q), count));
  const __m256i exponent = _mm256_add_epi32(_mm256_abs_epi32(q), _mm256_set1_epi32(127 - levels.count));
  const __m256i sign = _mm256_and_si256(q, _mm256_set1_epi32(static_cast<int32_t>(0x80000000u)));
  const __m256i power = _mm256_or_si256(_mm256_slli_epi32(exponent, 23), sign);
  const __m256i zero = _mm256_cmpeq_epi32(q, _mm256_setzero_si256());
  return _mm256_mul_ps(scale, _mm256_castsi256_ps(_mm256_andnot_si256(zero, power)));
}

BYTEPS_AVX2_INLINE __m256i load_levels(const int32_t* q, size_t i) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i));
}

BYTEPS_AVX2 void dequantize(const int32_t* q, size_t n, const Levels& given, float* out) {
  const Levels levels = given;
  const __m256 scale = _mm256_set1_ps(levels.scale), count = _mm256_set1_ps(static_cast<float>(levels.count));
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, value_of(load_levels(q, i), levels, scale, count));
  loops::dequantize(q, n, levels, out, i);
}

BYTEPS_AVX2 void add_levels(const int32_t* q, size_t n, const Levels& given, float* acc) {
  const Levels levels = given;
  const __m256 scale = _mm256_set1_ps(levels.scale), count = _mm256_set1_ps(static_cast<float>(levels.count));
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 value = value_of(load_levels(q, i), levels, scale, count);
    _mm256_storeu_ps(acc + i, _mm256_add_ps(_mm256_loadu_ps(acc + i), value));
  }
  loops::add_levels(q, n, levels, acc, i);
}

constexpr Kernels kAvx2 = {"avx2",       feedback,   subtract,   nesterov,    signs, signs_sum,
                           expand_signs, add_signs,  max_bits,   sum_squares, above, above_in_four,
                           quantize,     dequantize, add_levels, &kAvx2Blocks};

}  // namespace

const Kernels* avx2_kernels() { return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr; }

}  // namespace byteps::compress

#else

namespace byteps::compress {

const Kernels* avx2_kernels() { return nullptr; }

}  // namespace byteps::compress

#endif
