#include "worker/tensor_codec.h"

#include "base/memory.h"
#include "reduce/sum.h"

namespace byteps {

TensorCodec::TensorCodec(const compress::DeclaredCodec& declared, std::string_view name, DType dtype,
                         const Cut& cut, const std::vector<uint32_t>& partitions, uint32_t sender)
    : declared(declared), partitions_(cut.partitions()) {
  for (const uint32_t partition : partitions) {
    auto made = std::make_unique<PartitionCodec>();
    made->elements = cut.length_of(partition) / size_of(dtype);
    const size_t plain_bytes = made->elements * sizeof(float);
    MemoryGate::shared().ask(plain_bytes);  // a codec needs no more for itself
    const uint64_t key = stream_key(name, partition, declared.spec, sender);
    made->codec = make_codec(declared.spec, made->elements, declared.seed, key);
    MemoryGate::shared().ask((declared.spec.feedback ? plain_bytes : 0) + 2 * made->codec->max_bytes());
    if (declared.spec.feedback) made->error.resize(made->elements);
    made->payload.resize(made->codec->max_bytes());
    made->landing.resize(made->codec->max_bytes());
    partitions_[partition] = std::move(made);
  }
}

TensorCodec::Begun TensorCodec::begin(uint32_t round, float lr) {
  const Begun begun{{first_step_ + round, lr}, declared.factor(previous_lr_, lr)};
  previous_lr_ = lr;
  return begun;
}

float* TensorCodec::scratch(size_t elements) {
  thread_local std::vector<float> memory;  // grows to the largest partition, and stays
  if (memory.size() < elements) {
    MemoryGate::shared().ask(elements * sizeof(float));
    memory.resize(elements);
  }
  return memory.data();
}

void TensorCodec::encode(PartitionCodec& partition, DType dtype, const std::byte* x, float scale,
                         const Begun& begun) {
  const size_t n = partition.elements;
  if (dtype != DType::f32) {
    float* wide = scratch(n);
    if (dtype == DType::f64) {
      const auto* doubles = reinterpret_cast<const double*>(x);
      for (size_t i = 0; i < n; ++i) wide[i] = static_cast<float>(doubles[i]);
    } else {
      widen(dtype, wide, x, n);
    }
    return encode_wide(partition, wide, scale, begun);
  }
  const auto* g = reinterpret_cast<const float*>(x);
  std::byte* out = partition.payload.data();
  size_t bytes;
  if (!partition.error.empty()) {
    bytes = partition.codec->encode_with_feedback(g, scale, begun.factor, partition.error.data(),
                                                  begun.terms.step, out);
  } else if (scale == 1) {
    bytes = partition.codec->encode(g, begun.terms.step, out);
  } else {
    float* scaled = scratch(n);
    for (size_t i = 0; i < n; ++i) scaled[i] = scale * g[i];
    bytes = partition.codec->encode(scaled, begun.terms.step, out);
  }
  partition.payload_bytes = static_cast<uint32_t>(bytes);
}

void TensorCodec::encode_wide(PartitionCodec& partition, float* x, float scale, const Begun& begun) {
  std::byte* out = partition.payload.data();
  size_t bytes;
  if (!partition.error.empty()) {
    bytes = partition.codec->encode_with_feedback(x, scale, begun.factor, partition.error.data(),
                                                  begun.terms.step, out);
  } else {
    for (size_t i = 0; scale != 1 && i < partition.elements; ++i) x[i] *= scale;
    bytes = partition.codec->encode(x, begun.terms.step, out);
  }
  partition.payload_bytes = static_cast<uint32_t>(bytes);
}

void TensorCodec::decode(PartitionCodec& partition, DType dtype, size_t bytes, uint32_t step,
                         std::byte* out) {
  const size_t n = partition.elements;
  const std::byte* in = partition.landing.data();
  if (dtype == DType::f32) return partition.codec->decode(in, bytes, step, reinterpret_cast<float*>(out));
  float* wide = scratch(n);
  partition.codec->decode(in, bytes, step, wide);
  if (dtype == DType::f64) {
    auto* doubles = reinterpret_cast<double*>(out);
    for (size_t i = 0; i < n; ++i) doubles[i] = static_cast<double>(wide[i]);
  } else {
    narrow(dtype, out, wide, n);
  }
}

}  // namespace byteps
