#include "aggregator/update/compressed.h"

#include "aggregator/update/codec_of_key.h"

namespace byteps {

using compress::CodecKind;

Form CompressedRule::form() const {
  Form form = SumRule::form();
  form.codec = kind();
  if (total_) form.most_bytes = total_->max_bytes();
  return form;
}

bool CompressedRule::prepare(const Shape& shape, Counts counts) {
  if (!shape.compressed || total_) return false;
  // What a server sends of randomk is the whole sum: nothing is lost.
  const bool keeps_error = codec().spec.feedback && codec().spec.kind != CodecKind::randomk;
  make_for_key(key_, 3, [&] {  // the sum, the error, and what the codec needs besides
    error_.resize(keeps_error ? key_.elements() : 0);
    total_ =
        make_round_sum(codec().spec, key_.elements(), codec().seed, server_stream(key_), counts.children);
  });
  return true;
}

void CompressedRule::add(Contribution contribution, const Terms& terms, Counts counts, BufferPool& pool) {
  if (terms.broadcast) return SumRule::add(std::move(contribution), terms, counts, pool);
  if (is_empty_) {
    total_->clear();
    lr_ = contribution.terms.lr;
    is_empty_ = false;
  }
  total_->add(contribution.bytes.data(), contribution.shape.bytes, contribution.terms.step);
}

void CompressedRule::finish(const Terms& terms, Counts counts, BufferPool& pool) {
  if (terms.broadcast) return SumRule::finish(terms, counts, pool);
  BufferRef payload = pool.take(total_->max_bytes());
  const float c = codec().factor(previous_lr_, lr_);
  previous_lr_ = lr_;
  is_empty_ = true;
  const size_t bytes = error_.empty()
                           ? total_->encode(terms.step, payload.data())
                           : total_->encode_with_feedback(c, error_.data(), terms.step, payload.data());
  publish(std::move(payload), bytes, kind());
}

void CompressedRule::drop() {
  SumRule::drop();
  is_empty_ = true;
}

}  // namespace byteps
