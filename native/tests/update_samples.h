// Keys, headers and contributions for the tests of update rules: no socket, no shard.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "aggregator/update/rule.h"
#include "base/error.h"
#include "reduce/half.h"
#include "tests/check.h"

namespace byteps::testing {

inline const std::string kName = "worker 1";

// A tensor of so many elements, called "t1", in one piece.
inline KeyInfo key_of(size_t elements, DType dtype = DType::f32,
                      std::optional<compress::DeclaredCodec> codec = {}) {
  TensorInfo tensor{1, "t1", dtype, {elements * size_of(dtype), 1 << 20}, {{1, {0}}}, std::move(codec)};
  tensor.cut.whole_partitions = tensor.codec.has_value();
  return {make_key(1, 0), std::make_shared<const TensorInfo>(std::move(tensor))};
}

// A PUSH of these elements by a worker of ours.
inline Header push_of(const KeyInfo& key, uint16_t flags = 0, uint32_t root = 0) {
  Header header;
  header.type = FrameType::push;
  header.key = key.key;
  header.dtype = static_cast<uint8_t>(key.tensor->dtype);
  header.flags = flags;
  header.detail = root;
  header.length = key.length;
  return header;
}

inline Header compressed_push_of(const KeyInfo& key, uint32_t bytes, CodecTerms terms = {}) {
  Header header = push_of(key);
  header.codec = static_cast<uint8_t>(key.tensor->codec->spec.kind);
  header.length = bytes;
  header.received = terms.word();
  return header;
}

// What child 1 of two is told about this PUSH; empty: it is taken.
inline std::string refusal(const UpdateRule& rule, const KeyInfo& key, const Header& header) {
  try {
    shape_of(header, key, rule.form(), {1, kName}, 2);
    return "";
  } catch (const WireError& error) {
    return error.what();
  }
}

template <class T>
BufferRef buffer_of(BufferPool& pool, const std::vector<T>& values) {
  BufferRef buffer = pool.take(values.size() * sizeof(T));
  std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
  return buffer;
}

template <class T>
Contribution plain(BufferPool& pool, uint16_t child, const std::vector<T>& values, bool wide = false) {
  const auto bytes = static_cast<uint32_t>(values.size() * sizeof(T));
  return {child, buffer_of(pool, values), {.bytes = bytes, .wide = wide}};
}

inline Contribution compressed(BufferPool& pool, uint16_t child, const std::vector<std::byte>& payload,
                               CodecTerms terms = {}) {
  const auto bytes = static_cast<uint32_t>(payload.size());
  return {child, buffer_of(pool, payload), {.bytes = bytes, .compressed = true}, terms};
}

template <class T>
std::vector<T> values_of(const Result& result) {
  std::vector<T> values(result.size / sizeof(T));
  if (result.bytes) std::memcpy(values.data(), result.bytes.data(), result.size);
  return values;
}

// The contribution of a child: a sum shows who was counted, and how often.
inline double share_of(uint16_t child) { return std::ldexp(1.0, 2 * child); }

// A payload of the codec onebit for up to eight elements: a set bit is a negative element.
inline std::vector<std::byte> signs(float scale, uint8_t bits) {
  std::vector<std::byte> payload(5);
  std::memcpy(payload.data(), &scale, 4);
  payload[4] = std::byte{bits};
  return payload;
}

inline compress::DeclaredCodec codec_of(compress::CodecKind kind,
                                        compress::Feedback feedback = compress::Feedback::none) {
  compress::DeclaredCodec codec;
  codec.spec.kind = kind;
  codec.spec.k = 0.25;
  codec.feedback = feedback;
  codec.spec.feedback = feedback != compress::Feedback::none;
  return codec;
}

}  // namespace byteps::testing
