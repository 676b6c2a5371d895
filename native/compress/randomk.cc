#include "compress/randomk.h"

#include <cstring>

#include "compress/checks.h"

namespace byteps::compress {

namespace {

float factor_of(const CodecSpec& spec, size_t elements) {
  if (spec.feedback) return 1;
  return static_cast<float>(static_cast<double>(elements) / static_cast<double>(count_of(spec, elements)));
}

}  // namespace

RandomK::RandomK(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels)
    : Codec(elements, kernels),
      seed_(seed),
      key_(key),
      factor_(factor_of(spec, elements)),
      halves_(spec.halves),
      positions_(count_of(spec, elements)) {}

// All positions first: then the loads of the elements, which all miss the caches, overlap.
void RandomK::draw(uint32_t round) {
  const Permutation permutation(Stream(seed_, key_, round), static_cast<uint32_t>(elements_));
  for (uint32_t j = 0; j < positions_.size(); ++j) positions_[j] = permutation.position(j);
}

size_t RandomK::encode(const float* x, uint32_t round, std::byte* out) {
  draw(round);
  for (size_t j = 0; j < positions_.size(); ++j) put_value(out, j, x[positions_[j]] * factor_, halves_);
  return max_bytes();
}

void RandomK::decode(const std::byte* in, size_t bytes, uint32_t round, float* out) {
  check_bytes("randomk", bytes, max_bytes());
  draw(round);
  std::memset(out, 0, elements_ * sizeof(float));
  for (size_t j = 0; j < positions_.size(); ++j) out[positions_[j]] = get_value(in, j, halves_);
}

void RandomK::decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) {
  check_bytes("randomk", bytes, max_bytes());
  draw(round);
  for (size_t j = 0; j < positions_.size(); ++j) acc[positions_[j]] += get_value(in, j, halves_);
}

size_t RandomK::encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                                     std::byte* out) {
  draw(round);
  kernels_.feedback(g, a, c, error, elements_);
  for (size_t j = 0; j < positions_.size(); ++j) {
    float& p = error[positions_[j]];
    p -= put_value(out, j, p * factor_, halves_);
  }
  return max_bytes();
}

}  // namespace byteps::compress
