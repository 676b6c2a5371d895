// The sum of all children's elements, or their average over the ranks, or the bytes of a broadcast's root.
//
// The first contribution becomes the sum: nothing is copied. Half types are rounded once: a sum of more than
// two terms, or of a machine's sums, is kept in float32 until the end.
#pragma once

#include "aggregator/update/rule.h"

namespace byteps {

class SumRule : public UpdateRule {
 public:
  explicit SumRule(const KeyInfo& key) : UpdateRule(key) {}

  bool is_collective() const final { return true; }
  Form form() const override { return {.may_be_wide = is_half(key_.tensor->dtype)}; }
  void add(Contribution contribution, const Terms& terms, Counts counts, BufferPool& pool) override;
  void finish(const Terms& terms, Counts counts, BufferPool& pool) override;
  void drop() override;
  size_t first_bytes(const Terms&) const override { return key_.length; }
  size_t sum_bytes() const final { return !sum_ ? 0 : sum_is_wide_ ? 2 * size_t{key_.length} : key_.length; }
  Result result_for(uint16_t child, const Terms& terms) const final;
  const std::byte* result_elements() const final;

 protected:
  void publish(BufferRef bytes, size_t size, uint8_t codec);

 private:
  void add_wide(const Contribution& contribution, BufferPool& pool);
  BufferRef narrowed(const Terms& terms, Counts counts, BufferPool& pool) const;

  BufferRef sum_;  // of the children added so far
  bool sum_is_wide_ = false;
  Result result_;
};

}  // namespace byteps
