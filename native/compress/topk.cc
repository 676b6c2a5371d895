#include "compress/topk.h"

#include <bit>
#include <cstring>

#include "compress/bits.h"
#include "compress/checks.h"
#include "reduce/sum.h"

namespace byteps::compress {

namespace {

constexpr size_t kValuesAt = sizeof(uint32_t);

}  // namespace

TopK::TopK(const CodecSpec& spec, size_t elements, uint64_t, uint64_t, const Kernels& kernels)
    : Codec(elements, kernels),
      count_(count_of(spec, elements)),
      halves_(spec.halves),
      rice_bits_(static_cast<uint32_t>(std::bit_width(elements / count_)) - 1),
      select_(elements, count_, kernels),
      indices_(count_) {}

// The zeros of all codes together are at most n >> b: they add up to the last index.
size_t TopK::max_bytes() const {
  const size_t bits = count_ * (rice_bits_ + 1) + (elements_ >> rice_bits_);
  return kValuesAt + count_ * value_bytes(halves_) + (bits + 7) / 8 + BitWriter::kSlackBytes;
}

float TopK::value(const std::byte* in, size_t j) const { return get_value(in + kValuesAt, j, halves_); }

size_t TopK::write(const Elements& elements, std::byte* out) const {
  const std::vector<uint32_t>& indices = elements.index;
  const auto count = static_cast<uint32_t>(count_);
  std::memcpy(out, &count, sizeof count);
  if (halves_) {
    narrow(DType::f16, out + kValuesAt, elements.value.data(), count_);
  } else {
    std::memcpy(out + kValuesAt, elements.value.data(), count_ * sizeof(float));
  }
  std::byte* stream = out + kValuesAt + count_ * value_bytes(halves_);
  BitWriter writer(stream);
  uint32_t next = 0;
  for (size_t j = 0; j < count_; ++j) {
    writer.put_rice(indices[j] - next, rice_bits_);
    next = indices[j] + 1;
  }
  return static_cast<size_t>(stream - out) + writer.bytes();
}

const uint32_t* TopK::read(const std::byte* in, size_t bytes) {
  const size_t stream = kValuesAt + count_ * value_bytes(halves_);
  if (bytes < stream) {
    throw WireError("topk: a payload of " + std::to_string(bytes) + " bytes, the values alone take " +
                    std::to_string(stream));
  }
  uint32_t count;
  std::memcpy(&count, in, sizeof count);
  if (count != count_) {
    throw WireError("topk: " + std::to_string(count) + " elements, expected " + std::to_string(count_));
  }
  BitReader reader(in + stream, bytes - stream);
  uint32_t next = 0;
  for (size_t j = 0; j < count_; ++j) {
    indices_[j] = next + reader.rice(rice_bits_, static_cast<uint32_t>(elements_) - next);
    next = indices_[j] + 1;
  }
  reader.finish();
  return indices_.data();
}

size_t TopK::encode(const float* x, uint32_t, std::byte* out) { return write(select_.largest(x), out); }

void TopK::decode(const std::byte* in, size_t bytes, uint32_t, float* out) {
  read(in, bytes);
  std::memset(out, 0, elements_ * sizeof(float));
  for (size_t j = 0; j < count_; ++j) out[indices_[j]] = value(in, j);
}

void TopK::decode_add(const std::byte* in, size_t bytes, uint32_t, float* acc) {
  read(in, bytes);
  for (size_t j = 0; j < count_; ++j) acc[indices_[j]] += value(in, j);
}

// What is taken leaves zero behind, or what a half cannot hold; NaN where it was inf or NaN, as p -
// decode(C(p)) is.
size_t TopK::take(const Elements& chosen, float* p, std::byte* out) const {
  const size_t bytes = write(chosen, out);
  for (size_t j = 0; j < count_; ++j) p[chosen.index[j]] -= halves_ ? value(out, j) : chosen.value[j];
  return bytes;
}

size_t TopK::take_largest(float* p, std::byte* out) { return take(select_.largest(p), p, out); }

size_t TopK::encode_with_feedback(const float* g, float a, float c, float* error, uint32_t, std::byte* out) {
  return take(select_.largest_with_feedback(g, a, c, error), error, out);
}

}  // namespace byteps::compress
