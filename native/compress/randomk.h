// randomk: the values at k positions that everybody can compute.
//
//   4 k bytes   float32: x[position(j)] for j = 0 .. k - 1, times float32(n / k) when there is no error
//   feedback; 2 k bytes of float16 if values are to be halves
//
// The positions are Permutation(Stream(seed, key, round), n) of random.h: k distinct ones, each with chance k
// / n, and the same wherever seed, key and round are the same. So k-vectors of different workers are added
// element by element (RoundSum does), and the sum goes back as it is.
#pragma once

#include <vector>

#include "compress/codec.h"

namespace byteps::compress {

class RandomK final : public Codec {
 public:
  RandomK(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels);

  size_t max_bytes() const override { return positions_.size() * (halves_ ? 2 : sizeof(float)); }
  size_t encode(const float* x, uint32_t round, std::byte* out) override;
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override;
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override;
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override;

 private:
  void draw(uint32_t round);

  const uint64_t seed_, key_;
  const float factor_;
  const bool halves_;
  std::vector<uint32_t> positions_;
};

}  // namespace byteps::compress
