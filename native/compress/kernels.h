// The inner loops of codecs as free functions over spans, chosen at run time for the processor.
//
// Every set gives the same bits: products and sums are rounded one by one (no fused multiply-add), sums are
// made in double in 16 lanes, element i into lane i % 16, and the lanes are added pairwise (lane_total). So a
// span may be worked on in blocks, as long as all but the last have a multiple of 16 elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/block_kernels.h"
#include "compress/random.h"

namespace byteps::compress {

constexpr size_t kLanes = 16;
// Elements that a fused walk works on at a time: two or three spans of them stay in the first-level cache.
constexpr size_t kWalk = 2048;

struct Lanes {
  double sum[kLanes] = {};
};

inline double lane_total(Lanes lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes.sum[i] += lanes.sum[i + width];
  }
  return lanes.sum[0];
}

struct Levels {
  float scale;
  int32_t count;  // s
  bool natural;
};

struct Kernels {
  const char* name;

  // e = a * g + c * e
  void (*feedback)(const float* g, float a, float c, float* e, size_t n);
  // e -= x
  void (*subtract)(const float* x, float* e, size_t n);
  // m = mu * m + g; g = g + mu * m
  void (*nesterov)(float* m, float* g, float mu, size_t n);

  // Bit i of bits: x[i] < 0. The last byte is filled with zeros.
  void (*signs)(const float* x, size_t n, uint8_t* bits);
  // The same, and |x| into the lanes.
  void (*signs_sum)(const float* x, size_t n, uint8_t* bits, Lanes& lanes);
  // out = bit ? -s : s, and acc += that.
  void (*expand_signs)(const uint8_t* bits, size_t n, float s, float* out);
  void (*add_signs)(const uint8_t* bits, size_t n, float s, float* acc);

  // The largest magnitude as bits: above 0x7F800000 when there is a NaN.
  uint32_t (*max_bits)(const float* x, size_t n);
  void (*sum_squares)(const float* x, size_t n, Lanes& lanes);

  // Where the bits of |x| are at least `least`: the indices, counted from `first`, in order, and the elements
  // there. Stops when fewer than 32 places are left, and says how far it came.
  struct Found {
    size_t count, seen;
  };
  Found (*above)(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* index, float* value,
                 size_t room);

  // The same of a span in four quarters at once: memory serves four walks faster than one. What the s-th
  // quarter has goes to index + s * room and value + s * room. Not complete: there was no room.
  struct FoundInFour {
    size_t count[4];
    bool complete;
  };
  FoundInFour (*above_in_four)(const float* x, size_t quarter, uint32_t least, uint32_t* index, float* value,
                               size_t room);

  // q = sign and level of each element, rounded at random with stream.uniform(first + i); bit i of nonzero: q
  // != 0.
  void (*quantize)(const float* x, size_t n, const Levels& levels, const Stream& stream, uint32_t first,
                   int32_t* q, uint8_t* nonzero);
  // out = the value of q, and acc += that.
  void (*dequantize)(const int32_t* q, size_t n, const Levels& levels, float* out);
  void (*add_levels)(const int32_t* q, size_t n, const Levels& levels, float* acc);

  const BlockKernels* blocks;
};

const Kernels& generic_kernels();
const Kernels* avx2_kernels();  // null when the processor (or the architecture) lacks the instructions
const Kernels& best_kernels();

}  // namespace byteps::compress
