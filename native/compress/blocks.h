// int8, int4: blocks of 256 elements, each with its own step, as whole multiples of it.
//
//   for each block (the last may have fewer elements)
//   4 bytes     float32 step: max |x| / m, with m = 127 (int8) or 7 (int4); 0 where the maximum is below
//               2^-100, NaN where the block has an element that is not finite
//   int8        a byte per element: its code q, -127 to 127
//   int4        half a byte per element, the lower half first: its code q, -7 to 7, in two's complement; of
//   an
//               odd number of elements the last upper half is 0
//
// Decoded: q * step. Where the step is 0 or NaN all codes are 0, so that all elements are 0, or NaN: an
// overflow stays visible. With y = x * (m / max |x|)
//   nearest     q = y rounded to the nearest whole number, ties to even
//   stochastic  q = floor(y + u), within -m and m: right in the mean; u in block_kernels.h
//
// Every block is written where it is read: nothing is walked through twice, and each step stands beside its
// codes.
#pragma once

#include "compress/codec.h"

namespace byteps::compress {

class Blocks final : public Codec {
 public:
  static constexpr size_t kBlock = 256;

  Blocks(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels);

  size_t max_bytes() const override { return elements_ / kBlock * block_bytes(kBlock) + last_bytes(); }
  size_t encode(const float* x, uint32_t round, std::byte* out) override;
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override;
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override;
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override;

 private:
  struct Written {
    const int8_t* codes;
    float step;
  };
  size_t code_bytes(size_t count) const { return packed_ ? (count + 1) / 2 : count; }
  size_t block_bytes(size_t count) const { return sizeof(float) + code_bytes(count); }
  size_t last_bytes() const { return elements_ % kBlock == 0 ? 0 : block_bytes(elements_ % kBlock); }
  Written write(const float* x, size_t begin, size_t count, const Stream& stream, std::byte* out);
  Written read(const std::byte* in, size_t count);
  // step(begin, count, payload of the block), payload being the address of the first.
  template <class Byte, class Step>
  void walk_blocks(Byte* payload, Step&& step) const;

  const uint64_t seed_, key_;
  const char* const name_;
  const bool packed_, nearest_;
  const int8_t most_;
  alignas(32) int8_t codes_[kBlock];
};

}  // namespace byteps::compress
