#include "aggregator/key_codec.h"

#include "base/memory.h"
#include "reduce/sum.h"

namespace byteps {
namespace {

using compress::CodecKind;

constexpr uint32_t kServer = 0;  // as a sender, see stream_key

bool keeps_error(const compress::DeclaredCodec& declared) {
  // What a server sends of randomk is the whole sum: nothing is lost.
  return declared.spec.feedback && declared.spec.kind != CodecKind::randomk;
}

}  // namespace

KeyCodec::KeyCodec(const compress::DeclaredCodec& declared, std::string_view name, uint32_t partition,
                   size_t elements, uint16_t children)
    : declared_(declared),
      elements_(elements),
      key_(stream_key(name, partition, declared.spec, kServer)),
      sum_(make_round_sum(declared.spec, elements, declared.seed, key_, children)),
      error_(keeps_error(declared) ? elements : 0) {}

void KeyCodec::add(const std::byte* in, size_t bytes, CodecTerms terms) {
  if (is_empty_) {
    sum_->clear();
    lr_ = terms.lr;
    is_empty_ = false;
  }
  sum_->add(in, bytes, terms.step);
}

size_t KeyCodec::finish(uint32_t step, std::byte* out) {
  const float c = declared_.factor(previous_lr_, lr_);
  previous_lr_ = lr_;
  is_empty_ = true;
  return error_.empty() ? sum_->encode(step, out) : sum_->encode_with_feedback(c, error_.data(), step, out);
}

void KeyCodec::add_to(DType dtype, std::byte* value, const std::byte* in, size_t bytes, uint32_t step) {
  if (!decoder_) {
    MemoryGate::shared().ask(2 * elements_ * sizeof(float));
    decoded_.resize(dtype == DType::f32 ? 0 : elements_);
    decoder_ = make_codec(declared_.spec, elements_, declared_.seed, key_);
  }
  if (dtype == DType::f32) return decoder_->decode_add(in, bytes, step, reinterpret_cast<float*>(value));
  decoder_->decode(in, bytes, step, decoded_.data());
  if (dtype == DType::f64) {
    auto* wide = reinterpret_cast<double*>(value);
    for (size_t i = 0; i < elements_; ++i) wide[i] += static_cast<double>(decoded_[i]);
    return;
  }
  add_widened(dtype, decoded_.data(), value, elements_);
  narrow(dtype, value, decoded_.data(), elements_);
}

}  // namespace byteps
