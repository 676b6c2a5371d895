#include "aggregator/update/sum.h"

#include "reduce/sum.h"

namespace byteps {

void SumRule::add(Contribution contribution, const Terms& terms, Counts counts, BufferPool& pool) {
  if (terms.broadcast) {
    if (contribution.child == terms.root) sum_ = std::move(contribution.bytes);
    return;
  }
  if (!sum_) {
    sum_ = std::move(contribution.bytes);
    sum_is_wide_ = contribution.shape.wide;
    return;
  }
  const DType dtype = key_.tensor->dtype;
  if (is_half(dtype) && (counts.children > 2 || contribution.shape.wide || sum_is_wide_)) {
    return add_wide(contribution, pool);
  }
  if (counts.children == 2 && terms.average) {  // the last addition and the division in one
    add_average(dtype, sum_.data(), contribution.bytes.data(), key_.elements(), counts.ranks);
  } else {
    byteps::add(dtype, sum_.data(), contribution.bytes.data(), key_.elements());
  }
}

void SumRule::add_wide(const Contribution& contribution, BufferPool& pool) {
  const DType dtype = key_.tensor->dtype;
  const size_t n = key_.elements();
  if (!sum_is_wide_) {
    BufferRef wide = pool.take(n * sizeof(float));
    widen(dtype, reinterpret_cast<float*>(wide.data()), sum_.data(), n);
    sum_ = std::move(wide);
    sum_is_wide_ = true;
  }
  if (contribution.shape.wide) {
    byteps::add(DType::f32, sum_.data(), contribution.bytes.data(), n);
  } else {
    add_widened(dtype, reinterpret_cast<float*>(sum_.data()), contribution.bytes.data(), n);
  }
}

void SumRule::finish(const Terms& terms, Counts counts, BufferPool& pool) {
  if (sum_is_wide_) {
    sum_ = narrowed(terms, counts, pool);
    sum_is_wide_ = false;
  } else if (terms.average && counts.children != 2 && counts.ranks > 1) {
    average(key_.tensor->dtype, sum_.data(), key_.elements(), counts.ranks);
  }
  publish(std::move(sum_), key_.length, 0);
}

BufferRef SumRule::narrowed(const Terms& terms, Counts counts, BufferPool& pool) const {
  BufferRef narrow_sum = pool.take(key_.length);
  const auto* wide = reinterpret_cast<const float*>(sum_.data());
  if (terms.average) {
    narrow_average(key_.tensor->dtype, narrow_sum.data(), wide, key_.elements(), counts.ranks);
  } else {
    narrow(key_.tensor->dtype, narrow_sum.data(), wide, key_.elements());
  }
  return narrow_sum;
}

void SumRule::drop() {
  sum_.reset();
  sum_is_wide_ = false;
}

void SumRule::publish(BufferRef bytes, size_t size, uint8_t codec) {
  result_ = {std::move(bytes), static_cast<uint32_t>(size), codec, true};
}

Result SumRule::result_for(uint16_t child, const Terms& terms) const {
  if (terms.broadcast && terms.root == child) return {};  // the root has sent these bytes
  return result_;
}

const std::byte* SumRule::result_elements() const {
  return result_.bytes && result_.codec == 0 ? result_.bytes.data() : nullptr;
}

}  // namespace byteps
