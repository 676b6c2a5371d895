// fp16: each element as a 16-bit float.
//
//   2 n bytes   float16, round to nearest even; too large becomes inf, a NaN stays a NaN
//
// The conversions are those of native/reduce, which has the processor's own instructions for them.
#pragma once

#include "compress/codec.h"

namespace byteps::compress {

class Fp16 final : public Codec {
 public:
  Fp16(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels);

  size_t max_bytes() const override { return elements_ * 2; }
  size_t encode(const float* x, uint32_t round, std::byte* out) override;
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override;
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override;
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override;

 private:
  alignas(32) float decoded_[kWalk];
};

}  // namespace byteps::compress
