// The rounds of a slot: the last one opens, parts are claimed once, who gives up stops everything.
#include "local/slot.h"

#include <set>
#include <thread>
#include <vector>

#include "tests/check.h"

using byteps::SlotView;
namespace board = byteps::board;

namespace {

constexpr auto kNoBells = [](uint32_t) {};

byteps::Failure lost(const char* why) { return {byteps::FailureKind::lost, why}; }

struct Board {
  explicit Board(uint32_t ranks)
      : memory(board::slots_offset(ranks) + 4 * board::slot_stride(ranks) + 64), ranks(ranks) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    base = memory.data() + (64 - address % 64) % 64;
  }
  SlotView slot(uint32_t tensor = 0) { return SlotView(base, ranks, tensor); }
  std::vector<std::byte> memory;
  std::byte* base;
  uint32_t ranks;
};

}  // namespace

TEST(the_last_one_opens_the_round) {
  Board b(3);
  const SlotView slot = b.slot();
  CHECK(!slot.arrive(2));
  CHECK(!slot.arrive(0));
  CHECK(slot.has_arrived(2, 0));
  CHECK(!slot.has_arrived(1, 0));
  CHECK(slot.arrive(1));
  CHECK(slot.open(0));
  CHECK(slot.claimable(0, 2));
  CHECK_EQ(slot.claim(0, 2), 0);
  CHECK_EQ(slot.claim(0, 2), 1);
  CHECK_EQ(slot.claim(0, 2), -1);
  CHECK(!slot.finish(2));
  CHECK(!slot.over(0));
  CHECK(slot.finish(2));
  CHECK(slot.complete(0, kNoBells));
  CHECK(slot.over(0));
  CHECK(!slot.over(1));
  CHECK(!slot.arrive(0));  // the next round begins with nobody there
}

TEST(a_late_helper_of_the_round_before_claims_nothing) {
  Board b(2);
  const SlotView slot = b.slot();
  for (uint32_t round = 0; round < 2; ++round) {
    slot.arrive(0);
    slot.arrive(1);
    slot.open(round);
    if (round == 0) {
      slot.claim(0, 1);
      slot.finish(1);
      slot.complete(0, kNoBells);
    }
  }
  CHECK_EQ(slot.claim(0, 4), -1);
  CHECK_EQ(slot.claim(1, 4), 0);
}

TEST(closing_stops_claims_and_waits_for_those_under_way) {
  Board b(2);
  const SlotView slot = b.slot();
  slot.arrive(0);
  slot.arrive(1);
  slot.open(0);
  slot.claim(0, 3);
  slot.close(1, lost("gave up"));
  CHECK(slot.closed());
  CHECK_EQ(slot.closer(), 1);
  CHECK_EQ(slot.claim(0, 3), -1);
  CHECK(!slot.drained());
  slot.finish(3);
  CHECK(slot.drained());
  CHECK(!slot.complete(0, kNoBells));
  slot.close(0, lost("me, too"));
  CHECK(slot.close_reason()->message() == "gave up");
}

TEST(a_closed_slot_never_opens) {
  Board b(2);
  const SlotView slot = b.slot();
  slot.arrive(0);
  slot.close(0, lost("gave up"));
  CHECK(slot.drained());
  CHECK(slot.arrive(1));
  CHECK(!slot.open(0));
}

TEST(a_round_can_fail_and_the_next_one_does_not) {
  Board b(2);
  const SlotView slot = b.slot();
  for (uint32_t round = 0; round < 2; ++round) {
    slot.arrive(0);
    slot.arrive(1);
    if (round == 0) slot.fail(0, lost("first"));
    if (round == 0) slot.fail(0, lost("second"));
    CHECK_EQ(slot.failed(round), round == 0);
    CHECK(slot.complete(round, kNoBells));
  }
  CHECK(slot.round_reason().message() == "first");
}

TEST(slots_are_apart) {
  Board b(2);
  b.slot(0).close(0, lost("this one"));
  CHECK(!b.slot(1).closed());
  CHECK(!b.slot(1).close_reason());
}

TEST(bells_are_rung_for_those_who_asked) {
  Board b(3);
  const SlotView slot = b.slot();
  for (uint32_t rank = 0; rank < 3; ++rank) slot.arrive(rank);
  slot.open(0);
  slot.entry(2).wants_bell.store(1);
  std::set<uint32_t> rung;
  slot.claim(0, 1);
  slot.finish(1);
  slot.complete(0, [&](uint32_t rank) { rung.insert(rank); });
  CHECK(rung == std::set<uint32_t>{2});
}

TEST(many_threads_claim_every_part_once) {
  constexpr uint32_t kThreads = 4, kParts = 500, kRounds = 40;
  Board b(kThreads);
  const SlotView slot = b.slot();
  std::vector<std::atomic<int>> claimed(kParts);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        if (slot.arrive(rank)) CHECK(slot.open(round));
        while (!slot.over(round)) {
          const int64_t part = slot.claim(round, kParts);
          if (part >= 0) {
            claimed[static_cast<size_t>(part)].fetch_add(1, std::memory_order_relaxed);
            if (slot.finish(kParts)) CHECK(slot.complete(round, kNoBells));
            continue;
          }
          const uint32_t prepared = slot.changed().prepare();
          if (slot.over(round) || slot.claimable(round, kParts)) {
            slot.changed().cancel();
          } else {
            slot.changed().sleep(prepared, byteps::kNanosecondsPerSecond);
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& count : claimed) CHECK_EQ(count.load(), static_cast<int>(kRounds));
}
