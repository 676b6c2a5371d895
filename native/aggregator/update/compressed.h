// The sum of contributions that come compressed, compressed again for everybody. A broadcast is plain.
//
// What compressing the sum loses is kept here and added to the next sum. No worker knows of it, and a new
// server starts without it. Workers have divided before they compressed: there is nothing to do for averages.
#pragma once

#include <memory>
#include <vector>

#include "aggregator/update/sum.h"
#include "compress/round_sum.h"

namespace byteps {

class CompressedRule final : public SumRule {
 public:
  // Of a tensor with a codec.
  explicit CompressedRule(const KeyInfo& key) : SumRule(key) {}

  Form form() const override;
  bool prepare(const Shape& shape, Counts counts) override;
  void add(Contribution contribution, const Terms& terms, Counts counts, BufferPool& pool) override;
  void finish(const Terms& terms, Counts counts, BufferPool& pool) override;
  void drop() override;
  void enter() override { total_.reset(); }  // it was made for so many children; the error stays
  // The sum has memory of its own.
  size_t first_bytes(const Terms& terms) const override { return terms.broadcast ? key_.length : 0; }

 private:
  const compress::DeclaredCodec& codec() const { return *key_.tensor->codec; }
  uint8_t kind() const { return static_cast<uint8_t>(codec().spec.kind); }

  std::unique_ptr<compress::RoundSum> total_;  // made when the first compressed contribution comes
  std::vector<float> error_;                   // empty where there is none to keep
  bool is_empty_ = true;                       // nothing of the open round has been added yet
  float lr_ = 0, previous_lr_ = 0;
};

}  // namespace byteps
