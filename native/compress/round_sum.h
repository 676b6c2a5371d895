// The sum of the contributions of one round, in the form in which adding to it is cheapest.
//
// A server has one per partition: clear, add each contribution in its order, encode. The first contribution
// is stored and the others are added to it, as for tensors that are not compressed.
//
//   onebit, dithering, fp16, int8, int4   a dense array
//   randomk   k values: everybody sends the same positions, and the sum goes back as it is
//   topk      sorted indices and values, until a dense array is cheaper (sparse_sum.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "compress/codec.h"

namespace byteps::compress {

class RoundSum {
 public:
  virtual ~RoundSum() = default;
  RoundSum(const RoundSum&) = delete;
  RoundSum& operator=(const RoundSum&) = delete;

  // Room that `out` must have.
  virtual size_t max_bytes() const = 0;

  virtual void clear() = 0;
  // Throws WireError as decode_add does.
  virtual void add(const std::byte* in, size_t bytes, uint32_t round) = 0;
  // The payload for all workers, and its bytes. At least one contribution has been added. What is left of the
  // sum afterwards is not promised.
  virtual size_t encode(uint32_t round, std::byte* out) = 0;
  // p = sum + c * error; out = C(p); error = p - decode(C(p)). randomk loses nothing and leaves error as it
  // is.
  virtual size_t encode_with_feedback(float c, float* error, uint32_t round, std::byte* out) = 0;

 protected:
  RoundSum() = default;
};

// contributors: how many at most are added in one round; it decides what memory is allocated.
std::unique_ptr<RoundSum> make_round_sum(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key,
                                         size_t contributors, const Kernels& kernels = best_kernels());

}  // namespace byteps::compress
