// The kernels of blocks as loops over one element; as loops.h is for the other codecs.
#pragma once

#include <algorithm>
#include <cmath>

#include "compress/block_kernels.h"
#include "compress/loops.h"

namespace byteps::compress::loops {

// Adding and taking away 1.5 * 2^23 rounds to a whole number as the processor rounds: to nearest, ties to
// even.
BYTEPS_INLINE void nearest(const float* x, size_t n, float inverse, int8_t* q, size_t begin = 0) {
  constexpr float kWhole = 0x1.8p23f;
  for (size_t i = begin; i < n; ++i) {
    const float rounded = (x[i] * inverse + kWhole) - kWhole;
    q[i] = static_cast<int8_t>(static_cast<int32_t>(rounded));
  }
}

BYTEPS_INLINE void stochastic(const float* x, size_t n, float inverse, int8_t most, const Stream& stream,
                              uint32_t first, int8_t* q, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) {
    const float u = chance_of(stream, first + static_cast<uint32_t>(i));
    const auto code = static_cast<int32_t>(std::floor(x[i] * inverse + u));
    q[i] = static_cast<int8_t>(std::clamp<int32_t>(code, -most, most));
  }
}

// begin is even.
BYTEPS_INLINE void pack(const int8_t* q, size_t n, uint8_t* out, size_t begin = 0) {
  for (size_t i = begin; i < n; i += 2) {
    const uint32_t low = static_cast<uint8_t>(q[i]) & 15u;
    const uint32_t high = i + 1 < n ? static_cast<uint8_t>(q[i + 1]) & 15u : 0;
    out[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
}

BYTEPS_INLINE void unpack(const uint8_t* in, size_t n, int8_t* q, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) {
    const int32_t code = in[i / 2] >> (i % 2 * 4) & 15;
    q[i] = static_cast<int8_t>((code ^ 8) - 8);
  }
}

BYTEPS_INLINE int8_t least(const int8_t* q, size_t n) {
  int8_t found = 0;
  for (size_t i = 0; i < n; ++i) found = q[i] < found ? q[i] : found;
  return found;
}

BYTEPS_INLINE void expand(const int8_t* q, size_t n, float step, float* out, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) out[i] = static_cast<float>(q[i]) * step;
}

BYTEPS_INLINE void add(const int8_t* q, size_t n, float step, float* acc, size_t begin = 0) {
  for (size_t i = begin; i < n; ++i) acc[i] += static_cast<float>(q[i]) * step;
}

}  // namespace byteps::compress::loops
