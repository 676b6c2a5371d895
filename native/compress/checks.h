// What decoders say when a payload is not as it should be.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "reduce/half.h"

namespace byteps::compress {

// Every scale that is NaN is sent as this one. Processors differ in the NaN that a sum gives, and a payload
// must have the same bits on all of them.
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

// Values of a payload: float32, or float16 where they are to take less.
inline size_t value_bytes(bool halves) { return halves ? 2 : 4; }

inline float get_value(const std::byte* in, size_t j, bool halves) {
  if (halves) {
    uint16_t bits;
    std::memcpy(&bits, in + j * sizeof bits, sizeof bits);
    return f16_to_f32(bits);
  }
  float value;
  std::memcpy(&value, in + j * sizeof value, sizeof value);
  return value;
}

// Returns the value as it arrives.
inline float put_value(std::byte* out, size_t j, float value, bool halves) {
  if (halves) {
    const uint16_t bits = f32_to_f16(value);
    std::memcpy(out + j * sizeof bits, &bits, sizeof bits);
    return f16_to_f32(bits);
  }
  std::memcpy(out + j * sizeof value, &value, sizeof value);
  return value;
}

}  // namespace byteps::compress
