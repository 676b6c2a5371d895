// float16 and bfloat16 to and from float32, one value at a time.
//
// The conversions of whole spans are widen() and narrow() in sum.h: they pick the processor's own
// instructions where it has them, and give the same bits as these functions.
//
// All of it is free of branches and of operations on float32 denormals: the compiler can vectorise the loops
// around it, and a process that has switched flush-to-zero on (torch.set_flush_denormal) still gets every bit
// of a float16 denormal.
#pragma once

#include <bit>
#include <cstdint>

namespace byteps {

namespace half_bits {

inline constexpr uint32_t kSign = 0x80000000;
inline constexpr uint32_t kInfinity = 0x7F800000;  // of float32; a magnitude above it is a NaN
// 0.5f. One unit in the last place of [0.5, 1) is 2^-24, which is also the unit of float16 denormals: in that
// interval the mantissa of a float32 counts in float16 denormals.
inline constexpr uint32_t kDenormalBase = 0x3F000000;
// The exponent bias of float32 minus that of float16, where float32 has its exponent.
inline constexpr uint32_t kRebias = uint32_t{127 - 15} << 23;

// condition ? yes : no. As arithmetic, because a compiler that sees a choice may move the floating point
// operation of one side behind a branch, and then it cannot vectorise the loop any more.
inline constexpr uint32_t pick(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

}  // namespace half_bits

inline constexpr float f16_to_f32(uint16_t half) {
  using namespace half_bits;
  const uint32_t magnitude = half & 0x7FFFu;
  const uint32_t normal = (magnitude << 13) + kRebias;
  // Infinity and NaN: a second rebias turns the largest exponent of float16 into the largest of float32. The
  // quiet bit is set as the hardware does it.
  const uint32_t special = (normal + kRebias) | pick(magnitude > 0x7C00u, 0x00400000u, 0u);
  const float shifted = std::bit_cast<float>(kDenormalBase | magnitude);
  const uint32_t denormal = std::bit_cast<uint32_t>(shifted - 0.5f);
  const uint32_t finite = pick(magnitude < 0x0400u, denormal, normal);
  const uint32_t bits = pick(magnitude < 0x7C00u, finite, special);
  return std::bit_cast<float>(bits | (uint32_t{half} & 0x8000u) << 16);
}

// Rounds to nearest, ties to even; too large becomes infinity; a NaN stays a NaN, made quiet.
inline constexpr uint16_t f32_to_f16(float value) {
  using namespace half_bits;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSign;
  // Half a unit minus one, plus the last kept bit: carries into the kept bits exactly when it must. A carry
  // out of the mantissa steps the exponent, and out of the largest exponent gives infinity.
  const uint32_t normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - kRebias) >> 13;
  // The adder rounds to the unit of [0.5, 1), which is the unit of float16 denormals.
  const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - kDenormalBase;
  const uint32_t nan = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  const uint32_t finite = pick(magnitude < 0x38800000u, denormal, normal);  // 2^-14, the smallest normal
  const uint32_t special = pick(magnitude > kInfinity, nan, 0x7C00u);
  const uint32_t result = pick(magnitude < 0x47800000u, finite, special);  // 2^16
  return static_cast<uint16_t>(result | ((bits & kSign) >> 16));
}

// bfloat16 is the upper half of a float32.
inline constexpr float bf16_to_f32(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

inline constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  // Rounding could carry a NaN into infinity or into the other sign, and cutting could leave no payload bit.
  const uint32_t nan = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & ~half_bits::kSign) > half_bits::kInfinity ? nan : rounded);
}

}  // namespace byteps
