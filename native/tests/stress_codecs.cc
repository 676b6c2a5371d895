// The same as stress_push_pull with every tensor compressed, by codecs that lose nothing of its numbers.
#include "tests/stress.h"

int main(int argc, char** argv) {
  using namespace byteps::testing;
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  sums_are_exact({.workers = 2, .compressed = true, .partition_bytes = 100'000}, seed, 2);
  sums_are_exact({.workers = 3,
                  .codec_threads = 0,
                  .compressed = true,
                  .credit_bytes = 100'000,
                  .partition_bytes = 100'000,
                  .checksum = true},
                 seed + 1, 2);
  sums_are_exact({.workers = 2, .by_address = true, .codec_threads = 1, .compressed = true}, seed + 2, 2);
  sums_are_exact({.workers = 4,
                  .child_of = {0, 0, 1, 1},
                  .grouped = true,
                  .by_address = true,
                  .codec_threads = 3,
                  .compressed = true,
                  .partition_bytes = 100'000},
                 seed + 3, 2);
  // Many partitions on a link, which each worker's threads compress in an order of their own.
  sums_are_exact(
      {.workers = 3, .codec_threads = 3, .compressed = true, .partition_bytes = 4'000, .wire = Wire::far},
      seed + 6, 4);
  std::printf("sums: %d failed checks\n", byteps::check::failures().load());
  endings_let_go_of_memory(
      {.workers = 2, .compressed = true, .credit_bytes = 1 << 20, .partition_bytes = 100'000}, seed + 4, 10);
  endings_let_go_of_memory({.workers = 2, .by_address = true, .codec_threads = 0, .compressed = true},
                           seed + 5, 5);
  std::printf("endings: %d failed checks\n", byteps::check::failures().load());
  return byteps::check::failures() != 0;
}
