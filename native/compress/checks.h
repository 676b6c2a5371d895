// What decoders say when a payload is not as it should be.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"

namespace byteps::compress {

// The one NaN that is sent as a scale: which NaN a sum ends with, no processor promises.
constexpr uint32_t kNaN = 0x7FC00000;

inline void check_bytes(const char* codec, size_t bytes, size_t expected) {
  if (bytes == expected) return;
  throw WireError(std::string(codec) + ": a payload of " + std::to_string(bytes) + " bytes, expected " +
                  std::to_string(expected));
}

inline void put_scale(std::byte* out, float scale) {
  const uint32_t bits = scale != scale ? kNaN : std::bit_cast<uint32_t>(scale);
  std::memcpy(out, &bits, sizeof bits);
}

// A scale is never negative, and -0.0 is negative here.
inline float get_scale(const char* codec, const std::byte* in) {
  uint32_t bits;
  std::memcpy(&bits, in, sizeof bits);
  if (bits >> 31 != 0) throw WireError(std::string(codec) + ": a negative scale");
  return std::bit_cast<float>(bits);
}

}  // namespace byteps::compress
