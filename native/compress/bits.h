// Streams of bits, the lowest bit of a byte first, and the two codes of whole numbers that go into them.
//
// Elias delta of v >= 1: with N = floor(log2 v), L = N + 1, M = floor(log2 L): M zeros, a one, the M low bits
// of L, the N low bits of v. Rice of v >= 0 with b bits: v >> b zeros, a one, the b low bits of v. Bits of a
// number go lowest first. A stream ends with zeros up to the next byte.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"

namespace byteps::compress {

struct Code {
  uint64_t bits;
  uint32_t width;
};

inline constexpr Code elias_delta(uint32_t v) {
  const auto n = static_cast<uint32_t>(std::bit_width(v)) - 1, l = n + 1;
  const auto m = static_cast<uint32_t>(std::bit_width(l)) - 1;
  const uint64_t head = uint64_t{1} << m | uint64_t{l - (1u << m)} << (m + 1);
  return {head | uint64_t{v - (1u << n)} << (2 * m + 1), 2 * m + 1 + n};
}

// Writes whole words: up to eight bytes behind the end of the stream are touched. A copy of a writer is a
// place to go back to, and one that only the compiler sees lives in registers: bytes that are written could
// be anybody's otherwise.
class BitWriter {
 public:
  static constexpr size_t kSlackBytes = 8;

  explicit BitWriter(std::byte* out) : begin_(out), at_(out) {}

  // width is at most 56, and no bit above it is set.
  void put(uint64_t bits, uint32_t width) {
    word_ |= bits << used_;
    used_ += width;
    std::memcpy(at_, &word_, sizeof word_);
    at_ += used_ >> 3;
    word_ >>= used_ & ~7u;
    used_ &= 7;
  }
  void put(Code code) { put(code.bits, code.width); }
  void put_rice(uint32_t v, uint32_t b) {
    uint32_t zeros = v >> b;
    for (; zeros > 16; zeros -= 16) put(0, 16);
    put((uint64_t{1} | uint64_t{v & ((1u << b) - 1)} << 1) << zeros, zeros + 1 + b);
  }

  size_t bits() const { return static_cast<size_t>(at_ - begin_) * 8 + used_; }
  size_t bytes() const { return static_cast<size_t>(at_ - begin_) + (used_ != 0); }

 private:
  std::byte *begin_, *at_;
  uint64_t word_ = 0;
  uint32_t used_ = 0;  // bits of word_ that are set and not yet left behind; below 8 between calls
};

// Reads what a peer sent: never beyond its end, and a code that cannot be is a WireError.
class BitReader {
 public:
  BitReader(const std::byte* in, size_t bytes) : in_(in), bytes_(bytes) {}

  // The next kPeekBits bits or more; zeros behind the end.
  static constexpr uint32_t kPeekBits = 57;
  uint64_t peek() const {
    const size_t at = position_ >> 3;
    uint64_t word = 0;
    if (at + sizeof word <= bytes_) {
      std::memcpy(&word, in_ + at, sizeof word);
    } else if (at < bytes_) {
      std::memcpy(&word, in_ + at, bytes_ - at);
    }
    return word >> (position_ & 7);
  }
  void skip(uint32_t width) {
    position_ += width;
    if (position_ > bytes_ * 8) throw WireError("the stream of bits ends within a code");
  }
  uint32_t get(uint32_t width) {
    const uint64_t word = peek();
    skip(width);
    return static_cast<uint32_t>(word & ((uint64_t{1} << width) - 1));
  }

  uint32_t elias_delta() {
    const uint64_t word = peek();
    const auto m = static_cast<uint32_t>(std::countr_zero(word | uint64_t{1} << 63));
    if (m > 4)
      throw WireError("a bad Elias code: its length has " + std::to_string(m + 1) + " bits, at most 5");
    const uint32_t n = ((1u << m) | (static_cast<uint32_t>(word >> (m + 1)) & ((1u << m) - 1))) - 1;
    skip(2 * m + 1 + n);
    return (1u << n) | (static_cast<uint32_t>(word >> (2 * m + 1)) & ((1u << n) - 1));
  }
  // Values of limit and above are refused: how long the run of zeros may be follows from it.
  uint32_t rice(uint32_t b, uint32_t limit) {
    uint64_t zeros = 0;
    uint64_t word = peek();
    while ((word & 0xFFFF) == 0) {
      skip(16);
      zeros += 16;
      if (zeros << b >= limit) throw WireError("a Rice code beyond the last element");
      word = peek();
    }
    const auto rest = static_cast<uint32_t>(std::countr_zero(word));
    skip(rest + 1 + b);
    const uint64_t value = (zeros + rest) << b | (word >> (rest + 1) & ((uint64_t{1} << b) - 1));
    if (value >= limit) throw WireError("a Rice code beyond the last element");
    return static_cast<uint32_t>(value);
  }

  // The stream must end here, in its last byte, with zeros.
  void finish() const {
    if ((position_ + 7) / 8 != bytes_) {
      throw WireError("the stream of bits has " + std::to_string(bytes_) + " bytes, expected " +
                      std::to_string((position_ + 7) / 8));
    }
    if (position_ % 8 != 0 && peek() != 0) throw WireError("the padding of the stream of bits is not zero");
  }

 private:
  const std::byte* in_;
  size_t bytes_;
  size_t position_ = 0;
};

}  // namespace byteps::compress
