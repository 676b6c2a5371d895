#include "compress/round_sum.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "compress/checks.h"
#include "compress/sparse_sum.h"
#include "reduce/sum.h"

namespace byteps::compress {

namespace {

class DenseSum final : public RoundSum {
 public:
  DenseSum(std::unique_ptr<Codec> codec) : codec_(std::move(codec)), sum_(codec_->elements()) {}

  size_t max_bytes() const override { return codec_->max_bytes(); }
  void clear() override { is_empty_ = true; }
  void add(const std::byte* in, size_t bytes, uint32_t round) override {
    if (is_empty_) {
      codec_->decode(in, bytes, round, sum_.data());
    } else {
      codec_->decode_add(in, bytes, round, sum_.data());
    }
    is_empty_ = false;
  }
  size_t encode(uint32_t round, std::byte* out) override { return codec_->encode(sum_.data(), round, out); }
  size_t encode_with_feedback(float c, float* error, uint32_t round, std::byte* out) override {
    return codec_->encode_with_feedback(sum_.data(), 1, c, error, round, out);
  }

 private:
  std::unique_ptr<Codec> codec_;
  std::vector<float> sum_;
  bool is_empty_ = true;
};

class PackedSum final : public RoundSum {
 public:
  PackedSum(size_t count, bool halves) : halves_(halves), sum_(count) {}

  size_t max_bytes() const override { return sum_.size() * value_bytes(halves_); }
  void clear() override { is_empty_ = true; }
  void add(const std::byte* in, size_t bytes, uint32_t) override {
    check_bytes("randomk", bytes, max_bytes());
    if (halves_) {
      is_empty_ ? widen(DType::f16, sum_.data(), in, sum_.size())
                : add_widened(DType::f16, sum_.data(), in, sum_.size());
    } else if (is_empty_) {
      std::memcpy(sum_.data(), in, bytes);
    } else {
      byteps::add(DType::f32, sum_.data(), in, sum_.size());
    }
    is_empty_ = false;
  }
  size_t encode(uint32_t, std::byte* out) override {
    if (halves_) {
      narrow(DType::f16, out, sum_.data(), sum_.size());
    } else {
      std::memcpy(out, sum_.data(), max_bytes());
    }
    return max_bytes();
  }
  size_t encode_with_feedback(float, float*, uint32_t round, std::byte* out) override {
    return encode(round, out);
  }

 private:
  const bool halves_;
  std::vector<float> sum_;
  bool is_empty_ = true;
};

}  // namespace

std::unique_ptr<RoundSum> make_round_sum(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key,
                                         size_t contributors, const Kernels& kernels) {
  if (contributors == 0) throw std::invalid_argument("a sum of no contributions");
  std::unique_ptr<Codec> codec = make_codec(spec, elements, seed, key, kernels);  // checks the spec
  switch (spec.kind) {
    case CodecKind::randomk:
      return std::make_unique<PackedSum>(count_of(spec, elements), spec.halves);
    case CodecKind::topk:
      return std::make_unique<SparseSum>(spec, elements, contributors, kernels);
    default:
      return std::make_unique<DenseSum>(std::move(codec));
  }
}

}  // namespace byteps::compress
