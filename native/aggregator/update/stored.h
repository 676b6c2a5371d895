// A value that stays: each contribution is added to it at once, and its sender alone gets what it is then.
// A broadcast's root sets it. Asynchronous mode.
//
// Contributions of a tensor with a codec come compressed. The value goes out whole: it is no gradient, and
// nothing would correct what a codec loses of it.
#pragma once

#include <memory>
#include <vector>

#include "aggregator/update/rule.h"
#include "compress/codec.h"

namespace byteps {

class StoredRule final : public UpdateRule {
 public:
  explicit StoredRule(const KeyInfo& key) : UpdateRule(key) {}

  bool is_collective() const override { return false; }
  // Never wide: where nobody waits for anybody, no machine sums among itself.
  Form form() const override;
  bool prepare(const Shape& shape, Counts counts) override;
  void add(Contribution contribution, const Terms& terms, Counts counts, BufferPool& pool) override;
  Result result_for(uint16_t child, const Terms& terms) const override;
  const std::byte* result_elements() const override { return value_ ? value_.data() : nullptr; }

 private:
  void add_decoded(std::byte* value, const Contribution& contribution);

  BufferRef value_;
  std::unique_ptr<compress::Codec> decoder_;  // made when the first compressed contribution comes
  std::vector<float> decoded_;                // empty for float32: that is decoded where it is added
};

}  // namespace byteps
