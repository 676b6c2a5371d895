// The inner loops of int8 and int4 blocks, chosen at run time for the processor like those of kernels.h.
//
// A code is a small signed integer, one int8_t each while it is worked on. Every set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/random.h"

namespace byteps::compress {

struct BlockKernels {
  // q = x * inverse, rounded to nearest, ties to even. What comes out fits: inverse is most / max |x|.
  void (*nearest)(const float* x, size_t n, float inverse, int8_t* q);
  // q = floor(x * inverse + u), kept within -most and most; u: chance_of(stream, first + i). first is a
  // multiple of 16.
  void (*stochastic)(const float* x, size_t n, float inverse, int8_t most, const Stream& stream,
                     uint32_t first, int8_t* q);

  // Two codes to a byte, the first in its low half; of an odd number the last high half is 0. And back.
  void (*pack)(const int8_t* q, size_t n, uint8_t* out);
  void (*unpack)(const uint8_t* in, size_t n, int8_t* q);
  // The smallest code, or 0 if none is negative.
  int8_t (*least)(const int8_t* q, size_t n);

  // out = q * step, and acc += that.
  void (*expand)(const int8_t* q, size_t n, float step, float* out);
  void (*add)(const int8_t* q, size_t n, float step, float* acc);
};

extern const BlockKernels kGenericBlocks;
extern const BlockKernels kAvx2Blocks;  // those of kGenericBlocks on other architectures

// One hash of the stream serves two elements, eight apart: 16 bits each. With a code of 7 bits they fill a
// float32, so that an element that lies on a code exactly stays there whatever is drawn.
constexpr float chance_of(const Stream& stream, uint32_t index) {
  const uint32_t drawn = stream.bits(index / 16 * 8 + index % 8);
  const uint32_t half = index % 16 < 8 ? drawn & 0xFFFF : drawn >> 16;
  return static_cast<float>(static_cast<int32_t>(half)) * 0x1p-16f;
}

}  // namespace byteps::compress
