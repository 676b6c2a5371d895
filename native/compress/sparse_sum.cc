#include "compress/sparse_sum.h"

#include <algorithm>

namespace byteps::compress {

namespace {

constexpr size_t kSparseShare = 8;

size_t room_of(size_t elements, size_t count, size_t contributors) {
  return std::min(elements, std::max(count, std::min(count * contributors, elements / kSparseShare)));
}

}  // namespace

SparseSum::SparseSum(const CodecSpec& spec, size_t elements, size_t contributors, const Kernels& kernels)
    : codec_(spec, elements, 0, 0, kernels),
      room_(room_of(elements, codec_.count(), contributors)),
      now_(room_),
      next_(room_),
      scratch_(room_) {
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
    if (theirs) value += codec_.value(in, b++);
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

// Fewer than k elements, those in next_, are not zero: the lowest zeros join them, as they would be chosen
// from a dense array. The result is in now_.
void SparseSum::fill_with_zeros(size_t nonzero) {
  size_t zeros = codec_.count() - nonzero, a = 0, out = 0;
  for (uint32_t i = 0; out < codec_.count(); ++i) {
    if (zeros == 0) i = next_.index[a];  // on to the next element that is there
    const bool there = a < nonzero && next_.index[a] == i;
    now_.index[out] = i;
    now_.value[out++] = there ? next_.value[a++] : 0.0f;
    if (!there) --zeros;
  }
}

size_t SparseSum::encode_entries(std::byte* out) {
  size_t nonzero = 0;
  for (size_t j = 0; j < count_; ++j) {
    next_.index[nonzero] = now_.index[j];
    next_.value[nonzero] = now_.value[j];
    nonzero += now_.value[j] != 0;
  }
  if (nonzero < codec_.count()) {
    fill_with_zeros(nonzero);
    return codec_.write(now_, out);
  }
  keep_largest(next_, nonzero, codec_.count(), scratch_.data());
  return codec_.write(next_, out);
}

size_t SparseSum::encode(uint32_t round, std::byte* out) {
  return is_dense_ ? codec_.encode(dense_.data(), round, out) : encode_entries(out);
}

size_t SparseSum::encode_with_feedback(float c, float* error, uint32_t round, std::byte* out) {
  if (is_dense_) return codec_.encode_with_feedback(dense_.data(), 1, c, error, round, out);
  if (c != 1) {
    for (size_t i = 0; i < codec_.elements(); ++i) error[i] *= c;
  }
  for (size_t j = 0; j < count_; ++j) error[now_.index[j]] += now_.value[j];
  return codec_.take_largest(error, out);
}

}  // namespace byteps::compress
