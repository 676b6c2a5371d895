// Many tensors of many sizes, ranks that push in orders of their own, and sudden ends: for the sanitizers.
//
// Rank r contributes (element index mod 7 + 1) * 4^r, so a sum shows who was counted and how often. When an
// operation has ended, however it did, its memory is filled with a mark: nobody may write to it afterwards.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>

#include "base/clock.h"
#include "tests/check.h"
#include "tests/machine.h"

namespace byteps::testing {
namespace {

constexpr int64_t kPatienceNs = 60 * kNanosecondsPerSecond;

float value(size_t i, uint32_t rank) {
  return static_cast<float>(i % 7 + 1) * static_cast<float>(1 << (2 * rank));
}

void push_rounds(Machine& machine, uint32_t rank, uint32_t ranks, const std::vector<size_t>& sizes,
                 int rounds, uint64_t seed) {
  std::mt19937_64 random(seed + rank);
  std::vector<std::shared_ptr<Tensor>> tensors;
  for (uint32_t id = 0; id < sizes.size(); ++id) {
    tensors.push_back(machine.declare(rank, id, DType::f32, sizes[id] * 4));
  }
  float factor = 0;
  for (uint32_t r = 0; r < ranks; ++r) factor += static_cast<float>(1 << (2 * r));
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<float>> heap(sizes.size());
    std::vector<float*> data(sizes.size());
    std::vector<std::shared_ptr<Operation>> ops(sizes.size());
    for (const size_t i : order) {
      if (random() % 2) {
        data[i] = reinterpret_cast<float*>(machine.arenas[rank]->allocate(sizes[i] * 4));
      } else {
        heap[i].resize(sizes[i]);
        data[i] = heap[i].data();
      }
      for (size_t j = 0; j < sizes[i]; ++j) data[i][j] = value(j, rank);
      auto* bytes = reinterpret_cast<std::byte*>(data[i]);
      ops[i] = machine.clients[rank]->push_pull(tensors[i], bytes, bytes, static_cast<int32_t>(random() % 8),
                                                false);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      CHECK(ops[i]->wait_for(kPatienceNs));
      CHECK_EQ(ops[i]->failure().message, std::string());
      for (size_t j = 0; j < sizes[i]; ++j) {
        const float expected = static_cast<float>(j % 7 + 1) * factor;
        if (data[i][j] != expected) {
          CHECK_EQ(data[i][j], expected);
          return;
        }
      }
      if (heap[i].empty()) machine.arenas[rank]->free(reinterpret_cast<std::byte*>(data[i]));
    }
  }
}

void sums_are_exact(MachineOptions options, uint64_t seed) {
  Machine machine(options);
  std::mt19937_64 random(seed);
  std::vector<size_t> sizes;
  for (int id = 0; id < 24; ++id) {
    sizes.push_back(random() % (id % 8 == 0 ? 400'000 : id % 3 == 0 ? 40'000 : 200) + 1);
  }
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] { push_rounds(machine, rank, options.ranks, sizes, 5, seed); });
  }
  for (auto& thread : threads) thread.join();
}

void endings_let_go_of_memory(uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr size_t kElements = 1 << 20;
  const std::vector<float> mark(kElements, -1.0f);
  for (int repeat = 0; repeat < 24; ++repeat) {
    Machine machine({.ranks = 2});
    const auto t0 = machine.declare(0, 1, DType::f32, kElements * 4);
    const auto t1 = machine.declare(1, 1, DType::f32, kElements * 4);
    std::vector<float*> memory;
    std::vector<std::shared_ptr<Operation>> ops;
    for (int k = 0; k < 3; ++k) {  // the second and third wait for the first: one round at a time
      memory.push_back(reinterpret_cast<float*>(machine.arenas[0]->allocate(kElements * 4)));
      auto* bytes = reinterpret_cast<std::byte*>(memory.back());
      ops.push_back(machine.clients[0]->push_pull(t0, bytes, bytes, 0, true));
    }
    auto* other = machine.arenas[1]->allocate(kElements * 4);
    const int way = repeat % 4;
    const auto op1 = machine.clients[1]->push_pull(t1, other, other, 0, true);
    std::thread waiter([&] { op1->wait_for(kPatienceNs); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    if (way == 0) machine.clients[0]->fail({FailureKind::lost, "somebody died", Role::worker, 1, "here"});
    if (way == 1) machine.clients[0]->fail_tensor(1, "declared otherwise elsewhere");
    if (way == 2) machine.clients[0]->close();
    if (way == 3) machine.clients[1]->close();
    if (way == 3) machine.clients[0]->depart(1);
    for (size_t k = 0; k < ops.size(); ++k) {
      CHECK(ops[k]->wait_for(kPatienceNs));
      std::copy(mark.begin(), mark.end(), memory[k]);
    }
    machine.clients[1]->close();
    waiter.join();
    CHECK(op1->done());
    for (float* each : memory) CHECK(std::equal(mark.begin(), mark.end(), each));
  }
}

}  // namespace
}  // namespace byteps::testing

int main(int argc, char** argv) {
  using namespace byteps::testing;
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  sums_are_exact({.ranks = 2}, seed);
  sums_are_exact({.ranks = 4, .peers_readable = false}, seed + 1);
  sums_are_exact({.ranks = 8}, seed + 2);
  std::printf("sums: %d failed checks\n", byteps::check::failures().load());
  endings_let_go_of_memory(seed + 3);
  std::printf("endings: %d failed checks\n", byteps::check::failures().load());
  return byteps::check::failures() != 0;
}
