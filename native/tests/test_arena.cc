// The arena's bookkeeping: blocks never overlap, neighbours merge, freed memory is used again.
#include "transport/shm/arena.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <random>

#include "tests/check.h"

using byteps::Arena;

TEST(blocks_are_aligned_and_apart) {
  Arena arena(1 << 20);
  std::byte* a = arena.allocate(1);
  std::byte* b = arena.allocate(100);
  CHECK_EQ(reinterpret_cast<uintptr_t>(a) % Arena::kAlignment, 0u);
  CHECK_EQ(b - a, 64);
  CHECK_EQ(arena.used_bytes(), 192u);
}

TEST(a_full_arena_says_so_and_recovers) {
  Arena arena(4096);
  std::byte* all = arena.allocate(4096);
  bool refused = false;
  try {
    arena.allocate(1);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  CHECK(refused);
  arena.free(all);
  CHECK(arena.allocate(4096) == all);
}

TEST(what_is_not_a_block_cannot_be_freed) {
  Arena arena(4096);
  std::byte* block = arena.allocate(128);
  bool refused = false;
  try {
    arena.free(block + 64);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

TEST(large_blocks_give_their_pages_back) {
  Arena arena(8 << 20);
  std::byte* block = arena.allocate(4 << 20);
  std::memset(block, 1, 4 << 20);
  arena.free(block);
  std::byte* again = arena.allocate(4 << 20);
  CHECK(again == block);
  CHECK(again[12345] == std::byte{0});
}

TEST(random_use_keeps_every_byte) {
  constexpr uint64_t kSeed = 20;
  std::mt19937_64 random(kSeed);
  Arena arena(4 << 20);
  struct Block {
    std::byte* at;
    size_t bytes;
    int mark;
  };
  std::vector<Block> blocks;
  for (int step = 0; step < 4000; ++step) {
    if (blocks.empty() || (random() % 5 < 3 && blocks.size() < 200)) {
      const size_t bytes = random() % 8000 + 1;
      const int mark = static_cast<int>(random() % 256);
      std::byte* at = arena.allocate(bytes);
      std::memset(at, mark, bytes);
      blocks.push_back({at, bytes, mark});
    } else {
      const size_t i = random() % blocks.size();
      for (size_t j = 0; j < blocks[i].bytes; ++j) {
        if (blocks[i].at[j] != std::byte(blocks[i].mark)) {
          CHECK_EQ(j, size_t{0});
          break;
        }
      }
      arena.free(blocks[i].at);
      blocks[i] = blocks.back();
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) arena.free(block.at);
  CHECK_EQ(arena.used_bytes(), size_t{0});
  CHECK(arena.allocate(4 << 20) != nullptr);  // everything has merged again
}
