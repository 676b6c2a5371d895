// A machine's ranks reduce among themselves: every dtype, every kind of memory, and every way to fail.
#include <cstring>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "tests/check.h"
#include "tests/machine.h"

using namespace byteps;
using byteps::testing::Machine;
using byteps::testing::MachineOptions;

namespace {

constexpr int64_t kPatienceNs = 20 * kNanosecondsPerSecond;

void on_every_rank(uint32_t ranks, const std::function<void(uint32_t)>& work) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
  for (auto& thread : threads) thread.join();
}

bool arrives(Operation& op) {
  const int64_t deadline = machine_now_ns() + kPatienceNs;
  while (!op.wait_for(kNanosecondsPerSecond / 10)) {
    if (op.given_up || machine_now_ns() > deadline) return false;
  }
  return true;
}

enum class Where { arena, plain };

// elements of value (i % 5 + rank) on every rank; sums and averages are exact in every dtype used here.
template <typename T>
void sums_everywhere(MachineOptions options, DType dtype, size_t elements, Where where, bool in_place) {
  Machine machine(options);
  const uint32_t ranks = options.ranks;
  on_every_rank(ranks, [&](uint32_t rank) {
    const auto tensor = machine.declare(rank, 7, dtype, elements * sizeof(T));
    std::vector<T> heap(2 * elements);
    T* src = where == Where::plain
                 ? heap.data()
                 : reinterpret_cast<T*>(machine.arenas[rank]->allocate(2 * elements * sizeof(T)));
    T* dst = in_place ? src : src + elements;
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < elements; ++i) src[i] = static_cast<T>(i % 5 + rank);
      auto op = machine.clients[rank]->push_pull(tensor, reinterpret_cast<std::byte*>(src),
                                                 reinterpret_cast<std::byte*>(dst), 0, false);
      CHECK(arrives(*op));
      CHECK_EQ(op->failure().message, std::string());
      for (size_t i = 0; i < elements; ++i) {
        const T expected = static_cast<T>(ranks * (i % 5) + ranks * (ranks - 1) / 2);
        if (dst[i] != expected) {
          CHECK_EQ(dst[i], expected);
          return;
        }
      }
    }
  });
}

}  // namespace

TEST(sums_in_every_kind_of_memory) {
  for (const uint32_t ranks : {2u, 3u, 8u}) {
    for (const bool readable : {true, false}) {
      for (const bool in_place : {true, false}) {
        for (const Where where : {Where::arena, Where::plain}) {
          for (const size_t elements : {size_t{1}, size_t{1000}, size_t{300'001}}) {
            sums_everywhere<float>({.ranks = ranks, .peers_readable = readable}, DType::f32, elements, where,
                                   in_place);
          }
        }
      }
    }
  }
}

TEST(sums_of_other_types) {
  sums_everywhere<double>({.ranks = 3}, DType::f64, 1001, Where::plain, true);
  sums_everywhere<int64_t>({.ranks = 2}, DType::i64, 70'001, Where::arena, true);
  sums_everywhere<uint8_t>({.ranks = 4}, DType::u8, 300'007, Where::arena, false);
}

TEST(some_in_the_arena_and_some_outside) {
  Machine machine({.ranks = 3});
  on_every_rank(3, [&](uint32_t rank) {
    constexpr size_t kElements = 100'000;
    const auto tensor = machine.declare(rank, 0, DType::f32, kElements * 4);
    std::vector<float> heap(kElements, static_cast<float>(rank + 1));
    auto* arena = reinterpret_cast<float*>(machine.arenas[rank]->allocate(kElements * 4));
    std::copy(heap.begin(), heap.end(), arena);
    float* src = rank == 1 ? heap.data() : arena;
    float* dst = rank == 2 ? heap.data() : src;
    auto op = machine.clients[rank]->push_pull(tensor, reinterpret_cast<std::byte*>(src),
                                               reinterpret_cast<std::byte*>(dst), 0, true);
    CHECK(arrives(*op));
    CHECK_EQ(dst[0], 2.0f);
    CHECK_EQ(dst[kElements - 1], 2.0f);
  });
}

TEST(broadcast_brings_the_roots_bytes) {
  for (const bool readable : {true, false}) {
    Machine machine({.ranks = 3, .peers_readable = readable});
    on_every_rank(3, [&](uint32_t rank) {
      const auto tensor = machine.declare(rank, 0, DType::i32, 400'000);
      std::vector<int32_t> data(100'000, static_cast<int32_t>(rank));
      for (uint32_t root = 0; root < 3; ++root) {
        data[5] = static_cast<int32_t>(100 * rank + root);
        auto op =
            machine.clients[rank]->broadcast(tensor, reinterpret_cast<std::byte*>(data.data()), root, 0);
        CHECK(arrives(*op));
        CHECK_EQ(data[5], static_cast<int32_t>(100 * root + root));
      }
      CHECK_EQ(data[99'999], 0);
    });
  }
}

TEST(many_operations_on_one_tensor_keep_their_order) {
  Machine machine({.ranks = 2});
  on_every_rank(2, [&](uint32_t rank) {
    const auto tensor = machine.declare(rank, 0, DType::i32, 40'000);
    std::vector<std::vector<int32_t>> data;
    std::vector<std::shared_ptr<Operation>> ops;
    for (int k = 0; k < 20; ++k) {
      data.emplace_back(10'000, k);
      auto* bytes = reinterpret_cast<std::byte*>(data.back().data());
      ops.push_back(machine.clients[rank]->push_pull(tensor, bytes, bytes, 0, false));
    }
    for (int k = 19; k >= 0; --k) CHECK(arrives(*ops[static_cast<size_t>(k)]));
    for (int k = 0; k < 20; ++k) CHECK_EQ(data[static_cast<size_t>(k)][9'999], 2 * k);
  });
}

TEST(queued_operations_go_on_while_nobody_waits_for_them) {
  Machine machine({.ranks = 2});
  std::vector<int32_t> mine(1000, 1), more(1000, 2), theirs(1000, 10), also(1000, 20);
  auto bytes = [](std::vector<int32_t>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const auto t0 = machine.declare(0, 0, DType::i32, 4000), t1 = machine.declare(1, 0, DType::i32, 4000);
  auto first = machine.clients[0]->push_pull(t0, bytes(mine), bytes(mine), 0, false);
  auto second = machine.clients[0]->push_pull(t0, bytes(more), bytes(more), 0, false);
  auto a = machine.clients[1]->push_pull(t1, bytes(theirs), bytes(theirs), 0, false);
  CHECK(arrives(*a));
  auto b = machine.clients[1]->push_pull(t1, bytes(also), bytes(also), 0, false);
  CHECK(arrives(*b));  // rank 0 is elsewhere: its helper thread must start the second round
  CHECK_EQ(also[0], 22);
  CHECK(first->done() && second->done());
  CHECK_EQ(mine[0], 11);
}

TEST(different_operations_are_a_conflict_and_the_next_round_works) {
  Machine machine({.ranks = 2});
  on_every_rank(2, [&](uint32_t rank) {
    const auto tensor = machine.declare(rank, 0, DType::f32, 4000);
    std::vector<float> data(1000, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    auto wrong = machine.clients[rank]->push_pull(tensor, bytes, bytes, 0, rank == 1);
    CHECK(arrives(*wrong));
    CHECK_EQ(wrong->failure().kind, FailureKind::conflict);
    CHECK(wrong->failure().message.find("worker 1 (host here) a push_pull with average") !=
          std::string::npos);
    auto right = machine.clients[rank]->push_pull(tensor, bytes, bytes, 0, false);
    CHECK(arrives(*right));
    CHECK(!right->failure());
    CHECK_EQ(data[0], 2.0f);
  });
}

TEST(who_is_missing_is_said_and_then_given_up) {
  Machine machine({.ranks = 3, .op_timeout_s = 0.5, .stall_warn_s = 0.2});
  std::vector<float> data(1000);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const auto t0 = machine.declare(0, 0, DType::f32, 4000), t1 = machine.declare(1, 0, DType::f32, 4000);
  auto op = machine.clients[0]->push_pull(t0, bytes, bytes, 0, false);
  auto other = machine.clients[1]->push_pull(t1, bytes, bytes, 0, false);
  CHECK(arrives(*op));
  CHECK_EQ(op->failure().kind, FailureKind::timeout);
  CHECK(op->failure().message.find("waiting for worker 2 (host here)") != std::string::npos);
  bool told = false;
  for (const auto& event : machine.clients[0]->events().drain()) {
    told |= event.text.find("waits for worker 2 (host here)") != std::string::npos;
  }
  CHECK(told);
  CHECK(arrives(*other));  // the slot is closed: nobody waits in vain
  CHECK_EQ(other->failure().kind, FailureKind::timeout);
}

TEST(a_departed_rank_is_not_waited_for) {
  Machine machine({.ranks = 2});
  std::vector<float> data(1000);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const auto tensor = machine.declare(0, 0, DType::f32, 4000);
  auto before = machine.clients[0]->push_pull(tensor, bytes, bytes, 0, false);
  machine.clients[0]->depart(1);
  CHECK(arrives(*before));
  CHECK_EQ(before->failure().kind, FailureKind::lost);
  CHECK_EQ(before->failure().rank, 1);
  const auto another = machine.declare(0, 1, DType::f32, 4000);
  auto after = machine.clients[0]->push_pull(another, bytes, bytes, 0, false);
  CHECK(arrives(*after));
  CHECK_EQ(after->failure().rank, 1);
}

TEST(a_rank_that_fails_takes_the_others_with_it) {
  Machine machine({.ranks = 2});
  std::vector<float> a(1000), b(1000);
  const auto t0 = machine.declare(0, 0, DType::f32, 4000), t1 = machine.declare(1, 0, DType::f32, 4000);
  auto op = machine.clients[0]->push_pull(t0, reinterpret_cast<std::byte*>(a.data()),
                                          reinterpret_cast<std::byte*>(a.data()), 0, false);
  machine.clients[0]->fail({FailureKind::lost, "worker 5 was lost", Role::worker, 5, "there"});
  CHECK(arrives(*op));
  auto other = machine.clients[1]->push_pull(t1, reinterpret_cast<std::byte*>(b.data()),
                                             reinterpret_cast<std::byte*>(b.data()), 0, false);
  CHECK(arrives(*other));
  CHECK_EQ(other->failure().kind, FailureKind::lost);
  CHECK_EQ(other->failure().rank, 5);
}

TEST(memory_that_a_dead_rank_was_writing_to_is_never_done) {
  Machine machine({.ranks = 2});
  std::vector<float> a(1'000'000), b(1'000'000);
  const auto t0 = machine.declare(0, 0, DType::f32, 4'000'000);
  auto op = machine.clients[0]->push_pull(t0, reinterpret_cast<std::byte*>(a.data()),
                                          reinterpret_cast<std::byte*>(a.data()), 0, false);
  // Rank 1 comes, claims a part, and dies: played by hand on its slot.
  const auto t1 = machine.declare(1, 0, DType::f32, 4'000'000);
  board::Entry& entry = t1->slot.entry(1);
  entry.src = entry.dst = {reinterpret_cast<uint64_t>(b.data()), board::Location::plain};
  CHECK(t1->slot.arrive(1));
  CHECK(t1->slot.open(0));
  CHECK_EQ(t1->slot.claim(0, 31), 0);
  machine.clients[0]->fail({FailureKind::lost, "worker 1 was lost", Role::worker, 1, "here"});
  CHECK(!arrives(*op));
  CHECK(op->given_up);
  CHECK(!op->done());
  CHECK_EQ(op->failure().kind, FailureKind::lost);
  machine.clients[0]->close();
  CHECK(!op->done());
}
