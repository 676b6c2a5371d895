// Pieces cover a tensor exactly, in order, and never cross a partition's end.
#include "wire/cut.h"

#include <random>

#include "tests/check.h"

using byteps::Cut;

TEST(pieces_cover_the_tensor_exactly) {
  std::mt19937_64 random(5);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const uint64_t partition = (random() % 200'000 + 1) * 8;
    const auto cut_bytes = static_cast<uint32_t>((random() % 60'000 + 512) * 8);
    const Cut cut{random() % 5'000'000, partition, false, cut_bytes};
    uint64_t at = 0;
    for (uint32_t piece = 0; piece < cut.pieces(); ++piece) {
      CHECK_EQ(cut.offset_of(piece), at);
      const uint64_t length = cut.length_of(piece);
      CHECK(length > 0 && length <= cut_bytes);
      CHECK_EQ(at / partition, (at + length - 1) / partition);
      CHECK_EQ(cut.partition_of(piece), static_cast<uint32_t>(at / partition));
      at += length;
    }
    CHECK_EQ(at, cut.tensor_bytes);
  }
}

TEST(an_empty_tensor_has_no_pieces) { CHECK_EQ((Cut{0, 4096}.pieces()), 0u); }

TEST(bad_cuts_are_named) {
  CHECK(invalid(Cut{100, 0}) != nullptr);
  CHECK(invalid(Cut{100, 12}) != nullptr);
  CHECK(invalid(Cut{uint64_t{1} << 50, 4096}) != nullptr);
  CHECK(invalid(Cut{uint64_t{1} << 40, 8}) != nullptr);
  CHECK(invalid(Cut{100, uint64_t{1} << 40}) != nullptr);
  CHECK(invalid(Cut{100, 4'096'000}) == nullptr);
  for (const uint32_t piece : {0u, 4088u, 4100u, 0xffff'fff8u}) {
    CHECK(invalid(Cut{100, 4'096'000, false, piece}) != nullptr);
  }
}
