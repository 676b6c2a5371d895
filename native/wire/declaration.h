// The payload of a DECLARE frame: how a tensor is cut, and its name.
//
//   0  u64 tensor bytes
//   8  u64 partition bytes
//   16 u32 length of the name
//   20 the name, UTF-8
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "wire/cut.h"

namespace byteps {

struct Declaration {
  Cut cut;
  std::string name;
};

constexpr size_t kDeclarationFixedBytes = 20;

inline std::vector<std::byte> encode_declaration(const Declaration& d) {
  std::vector<std::byte> out(kDeclarationFixedBytes + d.name.size());
  const auto length = static_cast<uint32_t>(d.name.size());
  std::memcpy(out.data(), &d.cut.tensor_bytes, 8);
  std::memcpy(out.data() + 8, &d.cut.partition_bytes, 8);
  std::memcpy(out.data() + 16, &length, 4);
  std::memcpy(out.data() + kDeclarationFixedBytes, d.name.data(), length);
  return out;
}

inline Declaration decode_declaration(const std::vector<std::byte>& bytes) {
  if (bytes.size() < kDeclarationFixedBytes) throw WireError("DECLARE: payload too short");
  Declaration d;
  uint32_t length;
  std::memcpy(&d.cut.tensor_bytes, bytes.data(), 8);
  std::memcpy(&d.cut.partition_bytes, bytes.data() + 8, 8);
  std::memcpy(&length, bytes.data() + 16, 4);
  if (length > limits::kMaxNameBytes || bytes.size() != kDeclarationFixedBytes + length) {
    throw WireError("DECLARE: length of the name does not fit the payload");
  }
  if (const char* reason = invalid(d.cut)) throw WireError(std::string("DECLARE: ") + reason);
  d.name.assign(reinterpret_cast<const char*>(bytes.data()) + kDeclarationFixedBytes, length);
  return d;
}

}  // namespace byteps
