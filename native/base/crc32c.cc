// CRC32C by the CRC instruction of x86-64 or aarch64, in three interleaved streams, or else by tables.
//
// The checksum is the remainder of the message, seen as a polynomial over GF(2), divided by a fixed
// polynomial of degree 32. In the reflected form used here bit 31 of a word is the coefficient of x^0.
#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace byteps {

static_assert(std::endian::native == std::endian::little, "words are read as the CRC instruction reads them");

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;

// One bit further: times x.
constexpr uint32_t times_x(uint32_t value) { return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0); }

constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) result ^= b;
    b = times_x(b);
  }
  return result;
}

// x^(8 * bytes): what a register is multiplied by when that many zero bytes follow.
constexpr uint32_t shift_by(size_t bytes) {
  uint32_t result = 0x80000000;       // 1
  uint32_t square = times_x(result);  // x
  for (size_t bits = bytes * 8; bits != 0; bits >>= 1) {
    if ((bits & 1) != 0) result = product(result, square);
    square = product(square, square);
  }
  return result;
}

uint64_t load8(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Row k: the register after one byte and k more zero bytes (slicing by eight).
constexpr auto kSlices = [] {
  std::array<std::array<uint32_t, 256>, 8> rows{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (auto& row : rows) {
      for (int bit = 0; bit < 8; ++bit) value = times_x(value);
      row[byte] = value;
    }
  }
  return rows;
}();

uint32_t extend_portable(uint32_t crc, const uint8_t* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    const uint64_t word = load8(p) ^ crc;
    crc = 0;
    for (unsigned k = 0; k < 8; ++k) crc ^= kSlices[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; n > 0; ++p, --n) crc = (crc >> 8) ^ kSlices[0][(crc ^ *p) & 0xFF];
  return crc;
}

#if defined(__x86_64__)

#define BYTEPS_CRC __attribute__((target("sse4.2")))

BYTEPS_CRC inline uint32_t step8(uint32_t crc, const uint8_t* p) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, load8(p)));
}
BYTEPS_CRC inline uint32_t step1(uint32_t crc, const uint8_t* p) { return _mm_crc32_u8(crc, *p); }

bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__) && defined(__linux__)

#define BYTEPS_CRC

// Assembly, because compilers differ in when they offer the intrinsic without a machine flag.
inline uint32_t step8(uint32_t crc, const uint8_t* p) {
  uint32_t result;
  asm(".arch_extension crc\n\tcrc32cx %w0, %w1, %x2" : "=r"(result) : "r"(crc), "r"(load8(p)));
  return result;
}
inline uint32_t step1(uint32_t crc, const uint8_t* p) {
  uint32_t result;
  asm(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2"
      : "=r"(result)
      : "r"(crc), "r"(static_cast<uint32_t>(*p)));
  return result;
}

bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

#ifdef BYTEPS_CRC

// Row k: byte k of a register, times the shift over `bytes` zero bytes.
template <size_t bytes>
constexpr auto kShifts = [] {
  std::array<std::array<uint32_t, 256>, 4> rows{};
  const uint32_t factor = shift_by(bytes);
  for (uint32_t k = 0; k < 4; ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) rows[k][byte] = product(factor, byte << (8 * k));
  }
  return rows;
}();

template <size_t bytes>
inline uint32_t shift(uint32_t crc) {
  const auto& rows = kShifts<bytes>;
  return rows[0][crc & 0xFF] ^ rows[1][(crc >> 8) & 0xFF] ^ rows[2][(crc >> 16) & 0xFF] ^ rows[3][crc >> 24];
}

// The instruction takes three cycles but one can start every cycle: three neighbouring blocks are summed side
// by side, then joined as if each had been followed by the zeros in place of the blocks behind it.
template <size_t block>
BYTEPS_CRC inline uint32_t extend_by_threes(uint32_t crc, const uint8_t*& p, size_t& n) {
  while (n >= 3 * block) {
    uint32_t second = 0, third = 0;
    for (const uint8_t* end = p + block; p != end; p += 8) {
      crc = step8(crc, p);
      second = step8(second, p + block);
      third = step8(third, p + 2 * block);
    }
    crc = shift<block>(shift<block>(crc) ^ second) ^ third;
    p += 2 * block;
    n -= 3 * block;
  }
  return crc;
}

BYTEPS_CRC uint32_t extend_by_instruction(uint32_t crc, const uint8_t* p, size_t n) {
  crc = extend_by_threes<1024>(crc, p, n);  // long enough to hide the joining
  crc = extend_by_threes<128>(crc, p, n);   // short enough to help what is left, and small payloads
  for (; n >= 8; p += 8, n -= 8) crc = step8(crc, p);
  for (; n > 0; ++p, --n) crc = step1(crc, p);
  return crc;
}

#else

bool has_instruction() { return false; }
uint32_t extend_by_instruction(uint32_t crc, const uint8_t* p, size_t n) {
  return extend_portable(crc, p, n);
}

#endif

}  // namespace

uint32_t crc32c(const void* data, size_t n, uint32_t seed) {
  static const auto extend = has_instruction() ? extend_by_instruction : extend_portable;
  return ~extend(~seed, static_cast<const uint8_t*>(data), n);
}

uint32_t crc32c_portable(const void* data, size_t n, uint32_t seed) {
  return ~extend_portable(~seed, static_cast<const uint8_t*>(data), n);
}

}  // namespace byteps
