// The rules of a round: counted once, added in rank order, replay answered, broken peers noticed.
#include "aggregator/key_round.h"

#include <random>

#include "tests/check.h"

using byteps::KeyRound;
using Verdict = byteps::KeyRound::Verdict;

TEST(every_child_counts_once) {
  KeyRound round(3, true);
  CHECK(round.offer(1, 0) == Verdict::accept);
  round.hold(1);
  CHECK(round.offer(1, 0) == Verdict::duplicate);
  CHECK(!round.missing(1));
  CHECK(round.missing(0));
}

TEST(rank_order_whatever_the_arrival) {
  KeyRound round(3, true);
  round.hold(2);
  CHECK_EQ(round.next_to_add(), -1);
  round.hold(0);
  CHECK_EQ(round.next_to_add(), 0);
  round.add(0);
  CHECK_EQ(round.next_to_add(), -1);
  round.hold(1);
  CHECK_EQ(round.next_to_add(), 1);
  round.add(1);
  CHECK_EQ(round.next_to_add(), 2);
  round.add(2);
  CHECK(round.complete());
}

TEST(arrival_order_adds_at_once) {
  KeyRound round(3, false);
  round.hold(2);
  CHECK_EQ(round.next_to_add(), 2);
  round.add(2);
  CHECK_EQ(round.next_to_add(), -1);
}

TEST(verdicts_by_age) {
  KeyRound round(1, true);
  for (uint32_t r = 0; r < 5; ++r) {
    CHECK_EQ(round.round(), r);
    round.hold(0);
    round.add(0);
    CHECK(round.complete());
    round.close();
  }
  CHECK(round.offer(0, 5) == Verdict::accept);
  CHECK(round.offer(0, 4) == Verdict::finished);
  CHECK(round.offer(0, 3) == Verdict::past);
  CHECK(round.offer(0, 6) == Verdict::ahead);
}

TEST(a_dropped_contribution_is_asked_for_when_its_turn_comes) {
  KeyRound round(2, true);
  round.drop(1);
  CHECK(round.missing(1));
  CHECK(round.offer(1, 0) == Verdict::duplicate);  // not before it is asked for
  CHECK_EQ(round.next_to_ask(), -1);
  round.hold(0);
  round.add(0);
  CHECK_EQ(round.next_to_ask(), 1);
  round.ask(1);
  CHECK(round.offer(1, 0) == Verdict::accept);
  round.hold(1);
  round.add(1);
  CHECK(round.complete());
}

TEST(a_failed_round_asks_for_nothing) {
  KeyRound round(2, true);
  round.drop(1);
  CHECK(round.contributed(1) && !round.contributed(0));
  round.waive(1);
  round.hold(0);
  round.add(0);
  CHECK_EQ(round.next_to_ask(), -1);
  CHECK_EQ(round.next_to_add(), 1);
  round.add(1);
  CHECK(round.complete());
}

TEST(any_order_of_events_completes_in_rank_order) {
  std::mt19937 random(11);
  for (int repeat = 0; repeat < 500; ++repeat) {
    const auto children = static_cast<uint16_t>(random() % 6 + 1);
    KeyRound round(children, true);
    std::vector<uint16_t> to_send(children);
    for (uint16_t i = 0; i < children; ++i) to_send[i] = i;
    std::vector<int> added;
    while (!to_send.empty()) {
      const size_t pick = random() % to_send.size();
      const uint16_t child = to_send[pick];
      to_send.erase(to_send.begin() + static_cast<long>(pick));
      CHECK(round.offer(child, 0) == Verdict::accept);
      if (!round.its_turn(child) && random() % 2 == 0) {
        round.drop(child);
      } else {
        round.hold(child);
      }
      for (int next; (next = round.next_to_add()) >= 0;) {
        round.add(static_cast<uint16_t>(next));
        added.push_back(next);
      }
      if (const int asked = round.next_to_ask(); asked >= 0) {
        round.ask(static_cast<uint16_t>(asked));
        to_send.push_back(static_cast<uint16_t>(asked));
      }
    }
    CHECK(round.complete());
    CHECK_EQ(added.size(), size_t{children});
    for (size_t i = 0; i < added.size(); ++i) CHECK_EQ(added[i], static_cast<int>(i));
  }
}

TEST(the_next_epoch_may_have_other_children) {
  KeyRound round(2, true);
  round.hold(0);
  round.add(0);
  round.hold(1);
  round.add(1);
  round.close();
  round.hold(1);
  CHECK(round.open());
  round.enter(3);
  CHECK(!round.open() && !round.complete());
  CHECK_EQ(round.round(), 1u);  // counts go on
  for (uint16_t child = 0; child < 3; ++child) {
    CHECK(round.offer(child, 1) == Verdict::accept);
    round.hold(child);
    CHECK_EQ(round.next_to_add(), static_cast<int>(child));
    round.add(child);
  }
  CHECK(round.complete());
}
