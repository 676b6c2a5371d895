// The sum of topk contributions: sorted indices and values while they are few, then a dense array.
//
// Merging costs a few nanoseconds per element that is there, a dense sum an access to memory per element that
// is added and a walk through all of the partition at the end: merging pays while about one in eight elements
// is there.
#pragma once

#include <vector>

#include "compress/round_sum.h"
#include "compress/topk.h"

namespace byteps::compress {

class SparseSum final : public RoundSum {
 public:
  SparseSum(const CodecSpec& spec, size_t elements, size_t contributors, const Kernels& kernels);

  size_t max_bytes() const override { return codec_.max_bytes(); }
  void clear() override;
  void add(const std::byte* in, size_t bytes, uint32_t round) override;
  size_t encode(uint32_t round, std::byte* out) override;
  size_t encode_with_feedback(float c, float* error, uint32_t round, std::byte* out) override;

  bool is_dense() const { return is_dense_; }

 private:
  void merge(const uint32_t* index, const std::byte* in);
  void make_dense();
  size_t encode_entries(std::byte* out);
  void fill_with_zeros(size_t nonzero);

  TopK codec_;
  const size_t room_;  // entries
  size_t count_ = 0;
  bool is_dense_ = false;
  Elements now_, next_;
  std::vector<uint32_t> scratch_;
  std::vector<float> dense_;  // empty when all contributions together stay sparse
};

}  // namespace byteps::compress
