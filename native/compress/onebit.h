// onebit: the sign of each element and, with scaling, the mean magnitude.
//
//   bytes 0-3   float32 s: mean |x| with scaling (summed in double), else 1
//   then        (n + 7) / 8 bytes: bit i % 8 of byte i / 8 is 1 iff x[i] < 0; bits behind the last element
//   are 0
//
// Decoded: -s where the bit is set, else s. A NaN makes s NaN, when there is scaling.
#pragma once

#include "compress/codec.h"

namespace byteps::compress {

class OneBit final : public Codec {
 public:
  OneBit(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels);

  size_t max_bytes() const override { return sizeof(float) + (elements_ + 7) / 8; }
  size_t encode(const float* x, uint32_t round, std::byte* out) override;
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override;
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override;
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override;

 private:
  float checked(const std::byte* in, size_t bytes) const;

  const bool scaling_;
};

}  // namespace byteps::compress
