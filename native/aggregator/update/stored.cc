#include "aggregator/update/stored.h"

#include <cstring>

#include "aggregator/update/codec_of_key.h"
#include "reduce/sum.h"

namespace byteps {

Form StoredRule::form() const {
  Form form;
  if (key_.tensor->codec) form.codec = static_cast<uint8_t>(key_.tensor->codec->spec.kind);
  if (decoder_) form.most_bytes = decoder_->max_bytes();
  return form;
}

bool StoredRule::prepare(const Shape& shape, Counts) {
  if (!shape.compressed || decoder_) return false;
  const compress::DeclaredCodec& declared = *key_.tensor->codec;
  make_for_key(key_, 2, [&] {  // what is decoded, and what the codec needs besides
    decoded_.resize(key_.tensor->dtype == DType::f32 ? 0 : key_.elements());
    decoder_ = make_codec(declared.spec, key_.elements(), declared.seed, server_stream(key_));
  });
  return true;
}

// The value becomes another buffer: results on their way to others still read the one before.
void StoredRule::add(Contribution contribution, const Terms& terms, Counts, BufferPool& pool) {
  if (contribution.shape.compressed) {
    BufferRef value = pool.take(key_.length);
    if (value_) {
      std::memcpy(value.data(), value_.data(), key_.length);
    } else {
      std::memset(value.data(), 0, key_.length);
    }
    add_decoded(value.data(), contribution);
    value_ = std::move(value);
    return;
  }
  if (value_ && !terms.broadcast) {
    byteps::add(key_.tensor->dtype, contribution.bytes.data(), value_.data(), key_.elements());
  }
  value_ = std::move(contribution.bytes);
}

void StoredRule::add_decoded(std::byte* value, const Contribution& contribution) {
  const DType dtype = key_.tensor->dtype;
  const size_t n = key_.elements();
  const std::byte* in = contribution.bytes.data();
  const uint32_t bytes = contribution.shape.bytes, step = contribution.terms.step;
  if (dtype == DType::f32) return decoder_->decode_add(in, bytes, step, reinterpret_cast<float*>(value));
  decoder_->decode(in, bytes, step, decoded_.data());
  if (dtype == DType::f64) {
    auto* wide = reinterpret_cast<double*>(value);
    for (size_t i = 0; i < n; ++i) wide[i] += static_cast<double>(decoded_[i]);
    return;
  }
  add_widened(dtype, decoded_.data(), value, n);
  narrow(dtype, value, decoded_.data(), n);
}

// By address it could be replaced while it is read: anybody's contribution does that.
Result StoredRule::result_for(uint16_t, const Terms&) const { return {value_, key_.length, 0, false}; }

}  // namespace byteps
