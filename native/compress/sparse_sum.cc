#include "compress/sparse_sum.h"

#include <algorithm>
#include <numeric>

namespace byteps::compress {

namespace {

constexpr size_t kSparseShare = 8;

size_t room_of(size_t elements, size_t count, size_t contributors) {
  return std::min(elements, std::max(count, std::min(count * contributors, elements / kSparseShare)));
}

}  // namespace

SparseSum::SparseSum(const CodecSpec& spec, size_t elements, size_t contributors, const Kernels& kernels)
    : codec_(spec, elements, 0, 0, kernels), room_(room_of(elements, codec_.count(), contributors)) {
  for (Entries* entries : {&now_, &next_}) {
    entries->index.resize(room_);
    entries->value.resize(room_);
  }
  chosen_.resize(std::max(room_, codec_.count()));
  scratch_.resize(room_);
  if (room_ < codec_.count() * contributors) dense_.resize(elements);
}

void SparseSum::clear() {
  count_ = 0;
  is_dense_ = false;
}

void SparseSum::add(const std::byte* in, size_t bytes, uint32_t round) {
  if (is_dense_) return codec_.decode_add(in, bytes, round, dense_.data());
  const uint32_t* index = codec_.read(in, bytes);
  if (count_ + codec_.count() <= room_) return merge(index, in);
  make_dense();
  codec_.decode_add(in, bytes, round, dense_.data());
}

void SparseSum::merge(const uint32_t* index, const std::byte* in) {
  size_t a = 0, b = 0, out = 0;
  while (a < count_ || b < codec_.count()) {
    const bool ours = b == codec_.count() || (a < count_ && now_.index[a] <= index[b]);
    const bool theirs = a == count_ || (b < codec_.count() && index[b] <= now_.index[a]);
    next_.index[out] = ours ? now_.index[a] : index[b];
    // An element that is not there is zero: 0 + -0.0 is 0.
    float value = ours ? now_.value[a++] : 0.0f;
    if (theirs) value += TopK::value(in, b++);
    next_.value[out++] = value;
  }
  count_ = out;
  std::swap(now_, next_);
}

void SparseSum::make_dense() {
  std::fill(dense_.begin(), dense_.end(), 0.0f);
  for (size_t j = 0; j < count_; ++j) dense_[now_.index[j]] = now_.value[j];
  is_dense_ = true;
}

// Fewer than k elements are not zero: the lowest zeros join them, as they would be chosen from a dense array.
void SparseSum::fill_with_zeros(size_t nonzero) {
  size_t zeros = codec_.count() - nonzero, a = 0, out = 0;
  for (uint32_t i = 0; out < codec_.count(); ++i) {
    const bool there = a < nonzero && now_.index[chosen_[a]] == i;
    if (!there && zeros == 0) {
      i = now_.index[chosen_[a]] - 1;  // no zero is wanted any more: on to the next element that is there
      continue;
    }
    next_.index[out] = i;
    next_.value[out++] = there ? now_.value[chosen_[a++]] : 0.0f;
    if (!there) --zeros;
  }
}

size_t SparseSum::encode_entries(std::byte* out) {
  const size_t k = codec_.count();
  size_t nonzero = 0;
  for (uint32_t j = 0; j < count_; ++j) {
    if (now_.value[j] != 0) chosen_[nonzero++] = j;
  }
  if (nonzero < k) {
    fill_with_zeros(nonzero);
  } else {
    keep_largest(
        chosen_.data(), nonzero, k, [&](uint32_t j) { return size_of(now_.value[j]); }, scratch_.data());
    for (size_t j = 0; j < k; ++j) {
      next_.index[j] = now_.index[chosen_[j]];
      next_.value[j] = now_.value[chosen_[j]];
    }
  }
  return codec_.write(next_.index.data(), next_.value.data(), out);
}

size_t SparseSum::encode(uint32_t round, std::byte* out) {
  return is_dense_ ? codec_.encode(dense_.data(), round, out) : encode_entries(out);
}

size_t SparseSum::encode_with_feedback(float c, float* error, uint32_t round, std::byte* out) {
  if (is_dense_) return codec_.encode_with_feedback(dense_.data(), c, error, round, out);
  if (c != 1) {
    for (size_t i = 0; i < codec_.elements(); ++i) error[i] *= c;
  }
  for (size_t j = 0; j < count_; ++j) error[now_.index[j]] += now_.value[j];
  return codec_.take_largest(error, out);
}

}  // namespace byteps::compress
