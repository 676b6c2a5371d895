// Many tensors, many rounds, several workers and threads, in one process: see stress.h.
#include "tests/stress.h"

int main(int argc, char** argv) {
  using namespace byteps::testing;
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  sums_are_exact({.workers = 2}, seed);
  sums_are_exact({.workers = 4, .credit_bytes = 300'000, .partition_bytes = 100'000, .checksum = true},
                 seed + 1);
  sums_are_exact({.workers = 3, .credit_bytes = 0, .deterministic = false}, seed + 2);
  sums_are_exact({.workers = 1, .shards = 1, .credit_bytes = 4096, .partition_bytes = 4096}, seed + 3);
  sums_are_exact({.workers = 3, .by_address = true}, seed + 4);
  sums_are_exact({.workers = 2, .by_address = true, .same_machine = true, .deterministic = false}, seed + 5);
  sums_are_exact({.workers = 4, .child_of = {0, 0, 1, 1}, .grouped = true, .credit_bytes = 1 << 20},
                 seed + 5);
  sums_are_exact({.workers = 4, .child_of = {0, 1, 1, 1}, .grouped = true, .by_address = true}, seed + 6);
  // Many pieces on a link, divided among one rank here and three there.
  sums_are_exact({.workers = 4, .child_of = {0, 1, 1, 1}, .grouped = true, .partition_bytes = 4'000},
                 seed + 8, 4);
  // Between machines: every worker pushes in an order of its own, and servers ask for what they miss.
  sums_are_exact({.workers = 3, .credit_bytes = 300'000, .partition_bytes = 10'000, .wire = Wire::far},
                 seed + 9, 4);
  sums_are_exact({.workers = 4,
                  .child_of = {0, 1, 1, 1},
                  .grouped = true,
                  .credit_bytes = 300'000,
                  .partition_bytes = 10'000,
                  .wire = Wire::far},
                 seed + 10, 4);
  std::printf("sums: %d failed checks\n", byteps::check::failures().load());
  endings_let_go_of_memory({.workers = 2, .credit_bytes = 1 << 20}, seed + 6, 40);
  endings_let_go_of_memory({.workers = 2, .by_address = true, .credit_bytes = 1 << 20}, seed + 7, 40);
  endings_let_go_of_memory({.workers = 2, .credit_bytes = 1 << 20, .wire = Wire::far}, seed + 11, 20);
  std::printf("endings: %d failed checks\n", byteps::check::failures().load());
  return byteps::check::failures() != 0;
}
