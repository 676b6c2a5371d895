// dithering: each element rounded at random to one of s levels, without bias.
//
//   bytes 0-3   float32 scale: max |x|, or the l2 norm (summed in double)
//   then        nothing, when the scale is 0 (all elements are 0) or not finite (all elements decode to NaN:
//   an
//               overflow stays visible); else a stream of bits (bits.h):
//
//   for each block of 4096 elements (the last may have fewer), whichever of both is shorter, 0 when they are
//   equal
//     bit 0, then for each element: 1 bit sign, bit_width(s) bits level; sign 0 at level 0
//     bit 1, then Elias delta of 1 + the number of elements that are not at level 0, and for each of these:
//     Elias
//            delta of index - previous index (the one before the block at first), 1 bit sign, Elias delta of
//            level
//
// A choice per block and not per payload: the writer needs no second walk, and a gradient that is sparse in
// places gets the better of both. Levels, with r = |x| / scale and u = Stream::uniform(index):
//   linear    y = r * s; level = floor(y) + (u < y - floor(y)); value = sign * scale * (level / s)
//   natural   level 0 is 0, level j is 2^(j - s); between two levels, the upper one with chance (r - lower) /
//   (upper -
//             lower); value = sign * scale * 2^(level - s)
#pragma once

#include <vector>

#include "compress/bits.h"
#include "compress/codec.h"

namespace byteps::compress {

class Dithering final : public Codec {
 public:
  static constexpr size_t kBlock = 4096;
  static constexpr uint32_t kMaxLinear = 1 << 20, kMaxNatural = 127;

  Dithering(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels);

  size_t max_bytes() const override;
  size_t encode(const float* x, uint32_t round, std::byte* out) override;
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override;
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override;
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override;

 private:
  // The largest magnitude or the norm of what the step has been told of.
  struct Scale;
  size_t write(const float* x, float* error, float scale, uint32_t round, std::byte* out);
  void write_block(BitWriter& writer, size_t count) const;
  uint64_t mask_at(size_t group, size_t count) const;
  size_t filled_of(size_t count) const;
  size_t least_bits(size_t count) const;
  bool write_sparse(BitWriter& writer, size_t count, size_t dense_bits) const;
  void write_dense(BitWriter& writer, size_t count) const;
  template <class Block>
  void read(const std::byte* in, size_t bytes, const Block& block);
  void read_dense(BitReader& reader, size_t count);
  void read_block(BitReader& reader, size_t count);
  void read_sparse(BitReader& reader, size_t count);

  const uint64_t seed_, key_;
  const int32_t levels_;
  const uint32_t width_;  // of a level in a dense block
  const bool l2_, natural_;
  std::vector<uint64_t> ready_codes_;
  std::vector<uint8_t> level_bits_;  // of an element with gap 1, by its level
  alignas(32) int32_t q_[kBlock];
  alignas(32) uint8_t nonzero_[kBlock / 8];
};

}  // namespace byteps::compress
