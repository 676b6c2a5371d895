#include "aggregator/accumulate.h"

#include "reduce/sum.h"

namespace byteps {

void add_contribution(KeyState& key, uint16_t child, Counts counts, BufferPool& pool) {
  BufferRef part = std::move(key.held[child].bytes);
  if (key.coded()) {
    key.codec->add(part.data(), key.held[child].size, key.held[child].terms);
    return;
  }
  if (key.terms.broadcast) {
    if (child == key.terms.root) key.sum = std::move(part);
    return;
  }
  const DType dtype = key.tensor->dtype;
  const size_t n = key.length / size_of(dtype);
  const bool part_is_wide = key.held[child].wide;
  if (!key.sum) {
    key.sum = std::move(part);
    key.sum_is_wide = part_is_wide;
    return;
  }
  if (is_half(dtype) && (counts.children > 2 || part_is_wide || key.sum_is_wide)) {
    // More than two terms: keep the running sum in float32, so that it is rounded once, at the end.
    if (!key.sum_is_wide) {
      BufferRef wide = pool.take(n * sizeof(float));
      widen(dtype, reinterpret_cast<float*>(wide.data()), key.sum.data(), n);
      key.sum = std::move(wide);
      key.sum_is_wide = true;
    }
    if (part_is_wide) {
      add(DType::f32, key.sum.data(), part.data(), n);
    } else {
      add_widened(dtype, reinterpret_cast<float*>(key.sum.data()), part.data(), n);
    }
    return;
  }
  if (counts.children == 2 && key.terms.average) {
    add_average(dtype, key.sum.data(), part.data(), n,
                counts.ranks);  // the last addition and the division in one
  } else {
    add(dtype, key.sum.data(), part.data(), n);
  }
}

void finish_sum(KeyState& key, Counts counts, BufferPool& pool) {
  if (key.coded()) {  // workers have divided before they compressed
    BufferRef payload = pool.take(key.codec->max_bytes());
    key.result_bytes = static_cast<uint32_t>(key.codec->finish(key.terms.step, payload.data()));
    key.result = std::move(payload);
    key.result_round = key.round.round();
    return;
  }
  key.result_bytes = 0;
  key.result_round = key.round.round();
  const DType dtype = key.tensor->dtype;
  const size_t n = key.length / size_of(dtype);
  if (key.sum_is_wide) {
    BufferRef narrow_sum = pool.take(key.length);
    const auto* wide = reinterpret_cast<const float*>(key.sum.data());
    if (key.terms.average) {
      narrow_average(dtype, narrow_sum.data(), wide, n, counts.ranks);
    } else {
      narrow(dtype, narrow_sum.data(), wide, n);
    }
    key.sum = std::move(narrow_sum);
    key.sum_is_wide = false;
  } else if (key.terms.average && counts.children != 2 && counts.ranks > 1) {
    average(dtype, key.sum.data(), n, counts.ranks);
  }
  key.result = std::move(key.sum);
  key.sum.reset();
}

}  // namespace byteps
