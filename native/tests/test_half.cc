// float16 and bfloat16 conversions against the definition of the formats, for every half value there is.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reduce/half.h"
#include "tests/check.h"

using namespace byteps;

namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// What a finite or infinite half value means, out of the definition and not out of bit tricks.
double meaning(unsigned half, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(half >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(half) & ((1 << mantissa_bits) - 1);
  const double sign = (half & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// Rounding is monotonic, so it is right everywhere if it is right at every half value and at, just below and
// just above the middle of every two neighbours. Infinity counts as the value that would follow the largest
// one.
template <class Up, class Down>
void check_format(int exponent_bits, int mantissa_bits, Up up, Down down) {
  const unsigned infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  for (unsigned sign : {0x0000u, 0x8000u}) {
    for (unsigned magnitude = 0; magnitude <= infinity; ++magnitude) {
      const unsigned half = sign | magnitude;
      const float value = up(static_cast<uint16_t>(half));
      CHECK_EQ(static_cast<double>(value), meaning(half, exponent_bits, mantissa_bits));
      CHECK_EQ(std::signbit(value), sign != 0);
      CHECK_EQ(down(value), half);
      if (magnitude == infinity) break;
      const double here = std::abs(static_cast<double>(value));
      const double above = magnitude + 1 == infinity ? std::ldexp(1.0, 1 << (exponent_bits - 1))
                                                     : meaning(magnitude + 1, exponent_bits, mantissa_bits);
      const auto middle =
          static_cast<float>((here + above) / 2);  // exact: one bit more than the half type has
      const float signed_middle = sign != 0 ? -middle : middle;
      const unsigned even = (magnitude & 1) == 0 ? half : half + 1;
      CHECK_EQ(down(signed_middle), even);
      CHECK_EQ(down(from_bits(bits_of(signed_middle) - 1)), half);
      CHECK_EQ(down(from_bits(bits_of(signed_middle) + 1)), half + 1);
    }
    for (unsigned half = (sign | infinity) + 1; half <= (sign | 0x7FFFu); ++half) {
      const float value = up(static_cast<uint16_t>(half));
      CHECK(std::isnan(value));
      const unsigned back = down(value);
      CHECK_EQ(back, half | 1u << (mantissa_bits - 1));  // quiet, and otherwise the same NaN
    }
    // A NaN whose payload lies wholly in the bits that are cut off, and one that rounding would carry over.
    for (uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0x7F801FFFu, 0x7F80FFFFu}) {
      const unsigned half = down(from_bits(nan | sign << 16));
      CHECK((half & 0x7FFFu) > infinity);
      CHECK_EQ(half & 0x8000u, sign);
    }
    CHECK_EQ(down(from_bits(0x7F7FFFFFu | sign << 16)), sign | infinity);  // the largest float32
    CHECK_EQ(down(from_bits(0x00000001u | sign << 16)), sign);             // the smallest
  }
}

}  // namespace

TEST(float16_matches_its_definition) { check_format(5, 10, f16_to_f32, f32_to_f16); }

TEST(bfloat16_matches_its_definition) { check_format(8, 7, bf16_to_f32, f32_to_bf16); }

TEST(known_values) {
  static_assert(f32_to_f16(1.0f) == 0x3C00);
  static_assert(f32_to_f16(-2.0f) == 0xC000);
  static_assert(f32_to_f16(65504.0f) == 0x7BFF);
  static_assert(f32_to_f16(65520.0f) == 0x7C00);
  static_assert(f16_to_f32(0x0001) == 0x1p-24f);
  static_assert(f32_to_bf16(1.0f) == 0x3F80);
  static_assert(f32_to_bf16(3.14159265f) == 0x4049);
  static_assert(bf16_to_f32(0xC000) == -2.0f);
}
