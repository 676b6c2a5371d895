// The payload of a DECLARE frame: how a tensor is cut, its codec, and its name.
//
//   0  u64 tensor bytes
//   8  u64 partition bytes
//   16 u8 codec: 0 none, then all up to 40 is 0; u8 flags, u8 error feedback, u8 zero
//   20 u32 length of the codec's text, for codecs that live in Python
//   24 f64 k
//   32 u64 seed
//   40 u32 length of the name
//   44 u32 piece bytes; of a tensor with a codec they mean nothing
//   48 the name, UTF-8, then the text, UTF-8
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "wire/cut.h"

namespace byteps {

// compress/declared.h says what they mean.
struct CodecFields {
  uint8_t kind = 0;
  uint8_t flags = 0;
  uint8_t feedback = 0;
  double k = 0;
  uint64_t seed = 0;
  std::string text;
};

struct Declaration {
  Cut cut;  // a tensor with a codec travels in whole partitions
  std::string name;
  CodecFields codec;
};

constexpr size_t kDeclarationFixedBytes = 48;

inline std::vector<std::byte> encode_declaration(const Declaration& d) {
  std::vector<std::byte> out(kDeclarationFixedBytes + d.name.size() + d.codec.text.size());
  const auto name_bytes = static_cast<uint32_t>(d.name.size());
  const auto text_bytes = static_cast<uint32_t>(d.codec.text.size());
  std::memcpy(out.data(), &d.cut.tensor_bytes, 8);
  std::memcpy(out.data() + 8, &d.cut.partition_bytes, 8);
  out[16] = std::byte{d.codec.kind};
  out[17] = std::byte{d.codec.flags};
  out[18] = std::byte{d.codec.feedback};
  std::memcpy(out.data() + 20, &text_bytes, 4);
  std::memcpy(out.data() + 24, &d.codec.k, 8);
  std::memcpy(out.data() + 32, &d.codec.seed, 8);
  std::memcpy(out.data() + 40, &name_bytes, 4);
  std::memcpy(out.data() + 44, &d.cut.cut_bytes, 4);
  std::memcpy(out.data() + kDeclarationFixedBytes, d.name.data(), name_bytes);
  std::memcpy(out.data() + kDeclarationFixedBytes + name_bytes, d.codec.text.data(), text_bytes);
  return out;
}

inline Declaration decode_declaration(const std::vector<std::byte>& bytes) {
  if (bytes.size() < kDeclarationFixedBytes) throw WireError("DECLARE: payload too short");
  Declaration d;
  uint32_t name_bytes, text_bytes;
  std::memcpy(&d.cut.tensor_bytes, bytes.data(), 8);
  std::memcpy(&d.cut.partition_bytes, bytes.data() + 8, 8);
  d.codec.kind = static_cast<uint8_t>(bytes[16]);
  d.codec.flags = static_cast<uint8_t>(bytes[17]);
  d.codec.feedback = static_cast<uint8_t>(bytes[18]);
  std::memcpy(&text_bytes, bytes.data() + 20, 4);
  std::memcpy(&d.codec.k, bytes.data() + 24, 8);
  std::memcpy(&d.codec.seed, bytes.data() + 32, 8);
  std::memcpy(&name_bytes, bytes.data() + 40, 4);
  std::memcpy(&d.cut.cut_bytes, bytes.data() + 44, 4);
  if (name_bytes > limits::kMaxNameBytes || text_bytes > limits::kMaxNameBytes ||
      bytes.size() != kDeclarationFixedBytes + name_bytes + text_bytes) {
    throw WireError("DECLARE: lengths of the texts do not fit the payload");
  }
  if (bytes[19] != std::byte{0}) throw WireError("DECLARE: a reserved byte is not zero");
  d.cut.whole_partitions = d.codec.kind != 0;
  if (const char* reason = invalid(d.cut)) throw WireError(std::string("DECLARE: ") + reason);
  const char* texts = reinterpret_cast<const char*>(bytes.data()) + kDeclarationFixedBytes;
  d.name.assign(texts, name_bytes);
  d.codec.text.assign(texts + name_bytes, text_bytes);
  return d;
}

}  // namespace byteps
