// The randomness of codecs: functions of (seed, key, round, index), nothing else.
//
// There is no state to keep in step. A replay draws the same numbers, any element can be drawn alone, and
// eight lanes draw eight elements at once: only 32-bit products and shifts, which every vector unit has. The
// reference (src/byteps/compress/reference/random.py) has the same functions; docs/compression-format.md
// writes them down.
#pragma once

#include <bit>
#include <cstdint>

namespace byteps::compress {

// The finalizer of a 64-bit hash: a bijection in which every bit of the input reaches every bit of the
// output.
inline constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// What one partition draws from in one round. key names tensor and partition.
struct Stream {
  uint32_t low, high;

  constexpr Stream(uint64_t seed, uint64_t key, uint32_t round) : low(0), high(0) {
    constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
    const uint64_t mixed = mix64(mix64(mix64(seed + kStep) ^ key) + kStep * (uint64_t{round} + 1));
    low = static_cast<uint32_t>(mixed);
    high = static_cast<uint32_t>(mixed >> 32);
  }
  // 32 uniform bits for an index.
  constexpr uint32_t bits(uint32_t index) const {
    uint32_t h = index * 0x9E3779B1u + low;
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13) ^ high) * 0xC2B2AE35u;
    return h ^ (h >> 16);
  }
  // In [0, 1), a multiple of 2^-24: exact in float32.
  constexpr float uniform(uint32_t index) const {
    return static_cast<float>(static_cast<int32_t>(bits(index) >> 8)) * 0x1p-24f;
  }
};

// A permutation of [0, n) that the stream chooses: position(j) for j < k are k distinct positions.
//
// A Feistel network permutes the next power of two; what falls outside [0, n) walks on until it is inside. A
// small network with few keys is not a uniform choice of all permutations, so a rotation by a uniform offset
// follows: with it each position is drawn with chance exactly k/n, whatever the network did.
class Permutation {
 public:
  Permutation(const Stream& stream, uint32_t n) : n_(n) {
    const auto width = static_cast<uint32_t>(std::bit_width(n - 1));
    const uint32_t bits = width < 2 ? 2 : width;
    low_bits_ = bits / 2;
    low_mask_ = (uint32_t{1} << low_bits_) - 1;
    high_mask_ = (uint32_t{1} << (bits - low_bits_)) - 1;
    for (uint32_t r = 0; r < kRounds; ++r) keys_[r] = stream.bits(kKeyIndex + r);
    // floor(n * a number of 64 uniform bits / 2^64)
    const uint64_t high = stream.bits(kKeyIndex + kRounds), low = stream.bits(kKeyIndex + kRounds + 1);
    offset_ = static_cast<uint32_t>((high * n + (low * n >> 32)) >> 32);
  }

  uint32_t position(uint32_t j) const {
    uint32_t x = j;
    do x = network(x);
    while (x >= n_);
    x += offset_;
    return x >= n_ ? x - n_ : x;
  }

 private:
  static constexpr uint32_t kRounds = 6;
  static constexpr uint32_t kKeyIndex = 0xFFFFFF00u;  // no partition has so many elements

  static uint32_t scramble(uint32_t value, uint32_t key) {
    uint32_t h = (value + key) * 0x9E3779B1u;
    h = (h ^ (h >> 15)) * 0x85EBCA6Bu;
    return h ^ (h >> 16);
  }
  uint32_t network(uint32_t x) const {
    uint32_t high = x >> low_bits_, low = x & low_mask_;
    for (uint32_t r = 0; r < kRounds; r += 2) {
      high ^= scramble(low, keys_[r]) & high_mask_;
      low ^= scramble(high, keys_[r + 1]) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  uint32_t n_, low_bits_, low_mask_, high_mask_, offset_;
  uint32_t keys_[kRounds];
};

}  // namespace byteps::compress
