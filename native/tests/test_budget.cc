// The budget of all links to other machines: one order over all of them, and nobody is forgotten.
#include "worker/budget.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/check.h"

using namespace byteps;

namespace {

constexpr uint64_t kPiece = 100;

struct FakeLink final : Budget::Sender {
  int nudges = 0;
  void nudge() override { ++nudges; }
};

const auto no_round_trip = [] { return int64_t{0}; };

}  // namespace

TEST(pieces_leave_in_one_order_over_all_links) {
  Budget budget;
  budget.add_link(2 * kPiece);
  FakeLink a, b;
  CHECK(budget.admit(a, {0, 1, 0}, kPiece, 0));
  CHECK(budget.admit(b, {0, 1, 1}, kPiece, 0));
  CHECK(!budget.admit(b, {0, 1, 3}, kPiece, 0));  // full
  CHECK(!budget.admit(a, {0, 1, 2}, kPiece, 0));
  budget.received(kPiece, 0, no_round_trip);
  CHECK_EQ(a.nudges, 1);
  CHECK_EQ(b.nudges, 0);
  CHECK(!budget.admit(b, {0, 1, 3}, kPiece, 0));  // there is room, but it is not b's turn
  CHECK(budget.admit(a, {0, 1, 2}, kPiece, 0));
  budget.received(kPiece, 0, no_round_trip);
  CHECK_EQ(b.nudges, 1);
  CHECK(budget.admit(b, {0, 1, 3}, kPiece, 0));
}

TEST(links_that_are_equally_far_with_a_tensor_go_in_its_order_and_the_one_behind_first) {
  Budget budget;
  budget.add_link(kPiece);
  FakeLink a, b;
  constexpr uint32_t kHalf = 1u << 31;
  CHECK(budget.admit(a, {0, 1, 0, 0}, kPiece, 0));
  CHECK(!budget.admit(b, {0, 1, 0, 9}, kPiece, 0));
  CHECK(!budget.admit(a, {0, 1, kHalf, 1}, kPiece, 0));
  budget.received(kPiece, 0, no_round_trip);
  CHECK(!budget.admit(a, {0, 1, kHalf, 1}, kPiece, 0));  // b has sent nothing yet
  CHECK(budget.admit(b, {0, 1, 0, 9}, kPiece, 0));
  CHECK(!budget.admit(b, {0, 1, kHalf, 10}, kPiece, 0));
  budget.received(kPiece, 0, no_round_trip);
  CHECK(!budget.admit(b, {0, 1, kHalf, 10}, kPiece, 0));
  CHECK(budget.admit(a, {0, 1, kHalf, 1}, kPiece, 0));
}

TEST(a_link_gets_twice_its_part_of_the_window_and_never_less_than_two_pieces) {
  Budget budget;
  budget.add_link(40 * kPiece);
  FakeLink big, small;
  CHECK_EQ(budget.part(0, kPiece), 2 * kPiece);  // nothing was sent yet
  for (uint32_t piece = 0; piece < 30; ++piece) CHECK(budget.admit(big, {0, 1, piece}, kPiece, 0));
  for (uint32_t piece = 30; piece < 40; ++piece) CHECK(budget.admit(small, {0, 1, piece}, kPiece, 0));
  CHECK_EQ(budget.part(30 * kPiece, kPiece), 60 * kPiece);
  CHECK_EQ(budget.part(10 * kPiece, kPiece), 20 * kPiece);
  CHECK_EQ(budget.part(kPiece, kPiece), 2 * kPiece);
}

TEST(what_overtakes_needs_no_room_and_waits_for_nobody) {
  Budget budget;
  budget.add_link(kPiece);
  FakeLink a, b;
  CHECK(budget.admit(a, {-5, 1, 0}, kPiece, 0));
  CHECK(!budget.admit(b, {-5, 1, 1}, kPiece, 0));
  CHECK(!budget.admit(a, {-5, 1, 2}, kPiece, 0));
  budget.pass(a, kPiece, 0);
  budget.received(kPiece, 0, no_round_trip);
  CHECK_EQ(b.nudges, 0);  // the one that overtook is in flight
  budget.received(kPiece, 0, no_round_trip);
  CHECK_EQ(b.nudges, 1);
  CHECK(budget.admit(b, {-5, 1, 1}, kPiece, 0));  // a has asked for something else since, and does not wait
}

TEST(urgent_before_early_and_early_before_late) {
  using Place = Budget::Place;
  CHECK((Place{5, 9, 9}.before(Place{4, 1, 1})));
  CHECK((Place{0, 1, 9}.before(Place{0, 2, 0})));
  CHECK((Place{0, 1, 1}.before(Place{0, 1, 2})));
  CHECK(!(Place{0, 1, 1}.before(Place{0, 1, 1})));
  CHECK((Place{INT32_MAX, 0, 0}.before(Place{INT32_MIN, 0, 0})));
}

TEST(a_link_that_has_nothing_left_makes_way) {
  Budget budget;
  budget.add_link(kPiece);
  FakeLink a, b, c;
  CHECK(budget.admit(c, {0, 1, 0}, kPiece, 0));
  CHECK(!budget.admit(a, {0, 1, 1}, kPiece, 0));
  CHECK(!budget.admit(b, {0, 1, 2}, kPiece, 0));
  budget.received(kPiece, 0, no_round_trip);
  budget.withdraw(a);  // its operation was given up
  CHECK_EQ(b.nudges, 1);
  CHECK(budget.admit(b, {0, 1, 2}, kPiece, 0));
  budget.withdraw(b);  // waits for nothing: no harm
}

TEST(room_for_several_wakes_one_after_the_other) {
  Budget budget;
  budget.add_link(3 * kPiece);
  FakeLink big, a, b;
  CHECK(budget.admit(big, {0, 0, 0}, 3 * kPiece, 0));
  CHECK(!budget.admit(a, {0, 1, 0}, kPiece, 0));
  CHECK(!budget.admit(b, {0, 1, 1}, kPiece, 0));
  budget.received(3 * kPiece, 0, no_round_trip);
  CHECK_EQ(a.nudges + b.nudges, 1);
  CHECK(budget.admit(a, {0, 1, 0}, kPiece, 0));
  CHECK_EQ(b.nudges, 1);
}

// Links with different shares of the bytes: each gets a part of what goes as large as its share.
TEST(shares_of_the_bytes_become_shares_of_the_network) {
  Budget budget;
  std::vector<FakeLink> links(4);
  const std::vector<size_t> shares = {3, 3, 1, 1};
  for (size_t i = 0; i < links.size(); ++i) budget.add_link(4 * kPiece);
  std::vector<std::vector<uint32_t>> queues(links.size());
  uint32_t piece = 0;
  for (int turn = 0; turn < 100; ++turn) {
    for (size_t i = 0; i < links.size(); ++i) {
      for (size_t n = 0; n < shares[i]; ++n) queues[i].push_back(piece++);
    }
  }
  std::mt19937 random(3);
  std::vector<size_t> sent(links.size()), under_way(links.size());
  size_t total = 0;
  while (total < piece) {
    // Whoever comes first by chance may ask first, as sockets do; then one that is in flight is answered.
    std::vector<size_t> order = {0, 1, 2, 3};
    for (bool more = true; more;) {
      more = false;
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        if (sent[i] < queues[i].size() && budget.admit(links[i], {0, 1, queues[i][sent[i]]}, kPiece, 0)) {
          ++sent[i], ++under_way[i], ++total;
          more = true;
        }
      }
    }
    for (size_t i = 0; i < links.size(); ++i) {
      if (under_way[i] == 0) continue;
      --under_way[i];
      budget.received(kPiece, 0, no_round_trip);
    }
    // What fits into the budget at first, 16 pieces, anybody may take; from then on all keep pace.
    for (size_t i = 0; i < links.size(); ++i) {
      const double done = double(sent[i]) / double(queues[i].size()), all = double(total) / piece;
      CHECK(std::abs(done - all) <= 0.17);
    }
  }
}
