// The kernels as loops over one element, written once and compiled once per instruction set.
//
// Private to native/compress. Inlined by force into callers that may carry a target attribute; each takes the
// index to begin at, so that a hand-written kernel can leave its last few elements to it.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compress/kernels.h"

#ifdef __FAST_MATH__
#error "-ffast-math changes the bits of payloads; workers and servers must agree on them"
#endif

#define BYTEPS_INLINE [[gnu::always_inline]] inline

namespace byteps::compress::loops {

constexpr uint32_t kMagnitude = 0x7FFFFFFF;

BYTEPS_INLINE uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & kMagnitude; }

BYTEPS_INLINE void feedback(const float* g, float a, float c, float* e, size_t n) {
  for (size_t i = 0; i < n; ++i) e[i] = a * g[i] + c * e[i];
}

BYTEPS_INLINE void subtract(const float* x, float* e, size_t n) {
  for (size_t i = 0; i < n; ++i) e[i] -= x[i];
}

BYTEPS_INLINE void nesterov(float* m, float* g, float mu, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    m[i] = mu * m[i] + g[i];
    g[i] = g[i] + mu * m[i];
  }
}

// begin is a multiple of 8.
BYTEPS_INLINE void signs(const float* x, size_t n, uint8_t* bits, size_t begin = 0) {
  for (size_t i = begin; i < n; i += 8) {
    uint8_t byte = 0;
    const size_t end = n - i < 8 ? n - i : 8;
    for (size_t b = 0; b < end; ++b) byte = static_cast<uint8_t>(byte | (x[i + b] < 0.0f) << b);
    bits[i / 8] = byte;
  }
}

BYTEPS_INLINE void sum_magnitudes(const float* x, size_t n, Lanes& lanes, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) lanes.sum[i % kLanes] += static_cast<double>(std::fabs(x[i]));
}

BYTEPS_INLINE void sum_squares(const float* x, size_t n, Lanes& lanes, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) {
    const auto wide = static_cast<double>(x[i]);
    lanes.sum[i % kLanes] += wide * wide;  // the square is exact
  }
}

BYTEPS_INLINE float signed_by(const uint8_t* bits, size_t i, float s) {
  const uint32_t sign = static_cast<uint32_t>(bits[i / 8] >> (i % 8) & 1) << 31;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(s) ^ sign);
}

BYTEPS_INLINE void expand_signs(const uint8_t* bits, size_t n, float s, float* out, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) out[i] = signed_by(bits, i, s);
}

BYTEPS_INLINE void add_signs(const uint8_t* bits, size_t n, float s, float* acc, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) acc[i] += signed_by(bits, i, s);
}

BYTEPS_INLINE uint32_t max_bits(const float* x, size_t n) {
  int32_t most = 0;  // signed: the comparison that every vector unit has
  for (size_t i = 0; i < n; ++i) {
    const auto bits = static_cast<int32_t>(magnitude(x[i]));
    most = bits > most ? bits : most;
  }
  return static_cast<uint32_t>(most);
}

// The value of level q of linear dithering is scale * (q / s), not (q * scale) / s: nothing overflows on the
// way.
BYTEPS_INLINE float value_of(int32_t q, const Levels& levels) {
  if (!levels.natural) return levels.scale * (static_cast<float>(q) / static_cast<float>(levels.count));
  if (q == 0) return levels.scale * 0.0f;
  const int32_t exponent = (q < 0 ? -q : q) - levels.count + 127;
  const uint32_t bits = static_cast<uint32_t>(exponent) << 23 | (q < 0 ? 0x80000000u : 0u);
  return levels.scale * std::bit_cast<float>(bits);
}

BYTEPS_INLINE void dequantize(const int32_t* q, size_t n, const Levels& levels, float* out,
                              size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) out[i] = value_of(q[i], levels);
}

BYTEPS_INLINE void add_levels(const int32_t* q, size_t n, const Levels& levels, float* acc,
                              size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) acc[i] += value_of(q[i], levels);
}

// ratio is |x| / scale, in [0, 1].
BYTEPS_INLINE int32_t level_of(float ratio, float u, const Levels& levels) {
  if (!levels.natural) {
    const float y = ratio * static_cast<float>(levels.count), whole = std::floor(y);
    return static_cast<int32_t>(whole) + (u < y - whole);
  }
  const uint32_t bits = std::bit_cast<uint32_t>(ratio);
  const int32_t lower = static_cast<int32_t>(bits >> 23) - 127 + levels.count;
  if (lower < 1) {  // between 0 and the lowest level, 2^(1 - s)
    const uint32_t power = static_cast<uint32_t>(levels.count - 1 + 127) << 23;
    return u < ratio * std::bit_cast<float>(power);
  }
  const float mantissa = std::bit_cast<float>((bits & 0x007FFFFFu) | 0x3F800000u);
  return lower + (u < mantissa - 1.0f);
}

BYTEPS_INLINE void quantize(const float* x, size_t n, const Levels& levels, const Stream& stream,
                            uint32_t first, int32_t* q, uint8_t* nonzero, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) {
    const float u = stream.uniform(first + static_cast<uint32_t>(i));
    const int32_t level = level_of(std::fabs(x[i]) / levels.scale, u, levels);
    q[i] = x[i] < 0.0f ? -level : level;
    const auto bit = static_cast<uint8_t>((level != 0) << (i % 8));
    nonzero[i / 8] = static_cast<uint8_t>(i % 8 == 0 ? bit : nonzero[i / 8] | bit);
  }
}

BYTEPS_INLINE Kernels::Found above(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* index,
                                   float* value, size_t room, size_t begin = 0, size_t count = 0) {
  size_t i = begin;
  for (; i < n && room - count >= 32; ++i) {
    index[count] = first + static_cast<uint32_t>(i);
    value[count] = x[i];
    count += magnitude(x[i]) >= least;
  }
  return {count, i};
}

BYTEPS_INLINE Kernels::FoundInFour above_in_four(const float* x, size_t quarter, uint32_t least,
                                                 uint32_t* index, float* value, size_t room, size_t begin = 0,
                                                 Kernels::FoundInFour found = {{}, true}) {
  for (size_t s = 0; s < 4; ++s) {
    const Kernels::Found part = above(x + s * quarter, quarter, least, static_cast<uint32_t>(s * quarter),
                                      index + s * room, value + s * room, room, begin, found.count[s]);
    found.count[s] = part.count;
    found.complete = found.complete && part.seen == quarter;
  }
  return found;
}

}  // namespace byteps::compress::loops
