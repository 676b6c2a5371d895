// CRC32C against published values and against its definition, bit by bit.
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "tests/check.h"

using namespace byteps;

namespace {

uint32_t by_definition(const uint8_t* data, size_t n) {
  uint32_t crc = 0xFFFFFFFF;
  for (size_t i = 0; i < n; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::vector<uint8_t> noise(size_t n) {
  std::mt19937 random(1);
  std::vector<uint8_t> data(n);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  return data;
}

using Function = uint32_t (*)(const void*, size_t, uint32_t);
constexpr Function kBoth[] = {crc32c, crc32c_portable};

}  // namespace

TEST(published_values) {  // RFC 3720, appendix B.4
  std::vector<uint8_t> zeros(32, 0x00), ones(32, 0xFF), up(32), down(32);
  for (uint8_t i = 0; i < 32; ++i) up[i] = i, down[i] = static_cast<uint8_t>(31 - i);
  for (Function crc : kBoth) {
    CHECK_EQ(crc(std::string_view("123456789").data(), 9, 0), 0xE3069283u);
    CHECK_EQ(crc(nullptr, 0, 0), 0u);
    CHECK_EQ(crc(zeros.data(), 32, 0), 0x8A9136AAu);
    CHECK_EQ(crc(ones.data(), 32, 0), 0x62A8AB43u);
    CHECK_EQ(crc(up.data(), 32, 0), 0x46DD794Eu);
    CHECK_EQ(crc(down.data(), 32, 0), 0x113FDB5Cu);
  }
}

// All lengths around the block sizes of the interleaved code, at every alignment of the first byte.
TEST(every_length_and_alignment) {
  const auto data = noise(20000);
  const auto check = [&](size_t offset, size_t n) {
    const uint32_t expected = by_definition(data.data() + offset, n);
    for (Function crc : kBoth) CHECK_EQ(crc(data.data() + offset, n, 0), expected);
  };
  for (size_t n = 0; n < 900; ++n) check(n % 8, n);
  for (size_t base : {3072, 3072 + 384, 6144, 9216}) {
    for (size_t n = base - 9; n <= base + 9; ++n) {
      for (size_t offset = 0; offset < 8; ++offset) check(offset, n);
    }
  }
}

TEST(seed_chains_pieces) {
  const auto data = noise(8000);
  const uint32_t whole = crc32c(data.data(), data.size());
  for (Function crc : kBoth) {
    for (size_t cut = 0; cut <= data.size(); cut += 37) {
      CHECK_EQ(crc(data.data() + cut, data.size() - cut, crc(data.data(), cut, 0)), whole);
    }
  }
}

TEST(one_flipped_bit_is_seen) {
  auto data = noise(4096);
  const uint32_t whole = crc32c(data.data(), data.size());
  for (size_t bit = 0; bit < data.size() * 8; bit += 11) {
    data[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    CHECK(crc32c(data.data(), data.size()) != whole);
    data[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
}
