// topk: the k elements of largest magnitude, with their indices.
//
//   bytes 0-3   uint32 k, which both sides know: a payload of another tensor is not taken for this one
//   4 k bytes   float32 values, in ascending order of index; 2 k bytes of float16 if values are to be halves
//   then        k Rice codes (bits.h) of index - previous index - 1, the previous of the first being -1, with
//               b = floor(log2(n / k)) low bits; zeros up to the next byte
//
// Gaps between random positions are distributed geometrically, and Rice codes are the best whole-bit codes
// for that: 12 bits each at k = 0.001, where Elias delta takes 16. NaN counts as largest; ties keep the lower
// index.
#pragma once

#include <vector>

#include "compress/codec.h"
#include "compress/select.h"

namespace byteps::compress {

class TopK final : public Codec {
 public:
  TopK(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels);

  size_t max_bytes() const override;
  size_t encode(const float* x, uint32_t round, std::byte* out) override;
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override;
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override;
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override;

  // The parts of a payload, for a sum that stays sparse (sparse_sum.h).
  size_t count() const { return count_; }
  const uint32_t* read(const std::byte* in, size_t bytes);  // ascending indices, valid until the next call
  float value(const std::byte* in, size_t j) const;
  // The payload of the first count() elements.
  size_t write(const Elements& elements, std::byte* out) const;
  // out = C(p); p = p - decode(C(p))
  size_t take_largest(float* p, std::byte* out);

 private:
  size_t take(const Elements& chosen, float* p, std::byte* out) const;

  const size_t count_;
  const bool halves_;
  const uint32_t rice_bits_;
  Select select_;
  std::vector<uint32_t> indices_;  // of the payload that is being decoded
};

}  // namespace byteps::compress
