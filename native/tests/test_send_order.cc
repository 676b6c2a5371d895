// What is sent next, without a socket: every rule of docs/adr/0006, and a random job that must come to its
// end.
#include "base/tuning.h"
#include "worker/send_order.h"

#include <memory>
#include <string>

#include "tests/check.h"
#include "tests/ordered_link.h"
#include "worker/turn.h"

using namespace byteps;
using namespace byteps::testing;
using Readiness = SendOrder::Readiness;

// ---- priorities

TEST(the_most_urgent_goes_first_and_the_first_come_among_equals) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 1, 1), b('b', 2, 5), c('c', 1, 1), d('d', 1, 9);
  for (Pieces* transfer : {&a, &b, &c, &d}) link.order.submit(*transfer, Readiness::ready);
  CHECK_EQ(link.send(), std::string("d0, b0, b1, a0, c0, (nothing)"));
}

TEST(without_credit_there_is_no_order_but_that_of_submission) {
  Link link(0, nullptr);
  Pieces a('a', 2, 1), b('b', 1, 5);
  link.order.submit(a, Readiness::ready);
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, b0, (nothing)"));
}

TEST(what_is_more_urgent_interrupts_between_two_pieces) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 3, 1), b('b', 1, 5);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send_one(), std::string("a0"));
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("b0, a1, a2, (nothing)"));
}

// ---- window

TEST(no_more_is_in_flight_than_the_window_allows) {
  Link link(2 * kPiece, nullptr);
  Pieces a('a', 5);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (credit)"));
  link.credit(1);
  CHECK_EQ(link.send(), std::string("a2, (credit)"));
  link.order.answered(a, 0);  // an answer alone gives no room
  CHECK_EQ(link.send(), std::string("(credit)"));
  link.credit(3);
  CHECK_EQ(link.send(), std::string("a3, a4, (nothing)"));
}

TEST(a_piece_that_is_larger_than_the_window_goes_when_nothing_is_in_flight) {
  Link link(kPiece / 2, nullptr);
  Pieces a('a', 2);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, (credit)"));
  link.credit(1);
  CHECK_EQ(link.send(), std::string("a1, (nothing)"));
}

TEST(credit_is_asked_for_with_every_piece_to_another_machine) {
  Budget budget;
  Link far(64 * kPiece, &budget), unlimited(0, nullptr);
  Pieces a('a', 2), b('b', 1);
  far.order.submit(a, Readiness::ready);
  for (const char* piece : {"a0", "a1"}) {
    CHECK_EQ(far.send_one(), std::string(piece));
    CHECK(far.order.asks_for_credit());
  }
  unlimited.order.submit(b, Readiness::ready);
  CHECK_EQ(unlimited.send_one(), std::string("b0"));
  CHECK(!unlimited.order.asks_for_credit());
}

TEST(on_one_machine_credit_is_asked_for_with_every_quarter_of_the_window) {
  Link link(64 * tuning::kPieceBytes, nullptr);
  const uint32_t quarter = 16 * tuning::kPieceBytes / kPiece + 1;
  Pieces a('a', 2 * quarter);
  link.order.submit(a, Readiness::ready);
  for (uint32_t piece = 1; piece <= 2 * quarter; ++piece) {
    link.send_one();
    CHECK_EQ(link.order.asks_for_credit(), piece % quarter == 0);
  }
}

// ---- two pieces before the first answer

TEST(two_pieces_go_before_the_first_answer_and_all_others_after_it) {
  Budget budget;
  Link link(64 * kPiece, &budget);
  Pieces a('a', 5);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (first answer)"));
  link.credit(1);  // is no answer
  CHECK_EQ(link.send(), std::string("(first answer)"));
  CHECK(link.order.answered(a, 1));
  CHECK_EQ(link.send(), std::string("a2, a3, a4, (nothing)"));
  CHECK(!link.order.answered(a, 0));  // the second answer changes nothing
}

TEST(what_waits_for_its_first_answer_holds_nobody_up_and_keeps_its_place) {
  Budget budget;
  Link link(64 * kPiece, &budget);
  Pieces a('a', 3, 5), b('b', 4, 5), c('c', 1, 1);
  link.order.submit(a, Readiness::ready);
  link.order.submit(b, Readiness::ready);
  link.order.submit(c, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, b0, b1, c0, (first answer)"));
  link.order.answered(b, 0);
  link.order.answered(a, 0);
  CHECK_EQ(link.send(), std::string("a2, b2, b3, (nothing)"));
}

TEST(compressed_pieces_wait_for_no_answer) {
  Budget budget;
  Link link(64 * kPiece, &budget);
  Pieces a('a', 4);
  a.in_step = false;
  link.order.submit(a, Readiness::one_by_one);
  for (const uint32_t position : {3, 1, 0, 2}) link.order.ready(a, position);
  CHECK_EQ(link.send(), std::string("a3, a1, a0, a2, (nothing)"));
}

TEST(on_one_machine_and_without_credit_no_piece_waits_for_an_answer) {
  Link near(64 * kPiece, nullptr);
  Pieces a('a', 4);
  near.order.submit(a, Readiness::ready);
  CHECK_EQ(near.send(), std::string("a0, a1, a2, a3, (nothing)"));
  Budget budget;
  Link unlimited(0, &budget);
  Pieces b('b', 4);
  unlimited.order.submit(b, Readiness::ready);
  CHECK_EQ(unlimited.send(), std::string("b0, b1, b2, b3, (nothing)"));
}

// ---- pieces that are compressed

TEST(a_piece_enters_the_order_when_it_has_become_ready) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 2, 5), b('b', 2, 1);
  link.order.submit(a, Readiness::one_by_one);
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send_one(), std::string("b0"));
  link.order.ready(a, 1);
  CHECK_EQ(link.send(), std::string("a1, b1, (nothing)"));
  link.order.ready(a, 0);
  CHECK_EQ(link.send(), std::string("a0, (nothing)"));
}

TEST(a_piece_that_is_made_on_demand_is_asked_for_when_it_is_next) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 2);
  link.order.submit(a, Readiness::on_demand);
  NextStep step = link.order.next(0);
  CHECK(step.what == NextStep::Do::prepare && step.transfer == &a && step.position == 0);
  CHECK_EQ(link.send_one(), std::string("a0 prepare"));  // until it is
  link.order.prepared(step);
  CHECK_EQ(link.send_one(), std::string("a0"));
  step = link.order.next(0);
  CHECK(step.what == NextStep::Do::prepare && step.position == 1);
  link.order.failed(step, 0);  // the operation has failed: no other piece of it is asked for
  CHECK_EQ(link.send(), std::string("(nothing)"));
}

// ---- overtaking

TEST(one_urgent_piece_overtakes_and_the_next_when_credit_came) {
  Budget budget;
  Link link(2 * kPiece, &budget);
  Pieces a('a', 2, 0), b('b', 2, 1), c('c', 2, 2);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (nothing)"));
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("b0 overtakes, (credit)"));
  link.order.submit(c, Readiness::ready);
  CHECK_EQ(link.send(), std::string("(credit)"));
  link.credit(1);
  CHECK_EQ(link.send(), std::string("c0 overtakes, (credit)"));
  link.credit(3);  // everything has arrived
  CHECK_EQ(link.send(), std::string("c1, b1, (nothing)"));
}

TEST(what_is_not_more_urgent_than_what_was_sent_last_does_not_overtake) {
  Budget budget;
  Link link(2 * kPiece, &budget);
  Pieces a('a', 2, 5), b('b', 1, 5), c('c', 1, 4);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (nothing)"));
  link.order.submit(c, Readiness::ready);
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("(credit)"));
  link.credit(2);
  CHECK_EQ(link.send(), std::string("b0, c0, (nothing)"));
}

TEST(on_one_machine_nothing_overtakes) {
  Link link(2 * kPiece, nullptr);
  Pieces a('a', 2, 0), b('b', 1, 1);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (nothing)"));
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("(credit)"));
}

// ---- WANT

TEST(what_is_wanted_goes_first_and_once_though_there_is_no_room) {
  Budget budget;
  Link link(2 * kPiece, &budget);
  Pieces a('a', 2, 5), b('b', 3, 0);
  link.order.submit(a, Readiness::ready);
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (credit)"));
  link.order.wanted(b, 1);
  link.order.wanted(b, 1);
  CHECK_EQ(link.send(), std::string("b1 wanted, (credit)"));
  link.order.wanted(b, 1);  // is in flight
  link.order.wanted(a, 0);
  CHECK_EQ(link.send(), std::string("(credit)"));
  for (const uint32_t position : {0, 1}) link.answer(a, position);
  link.answer(b, 1);
  CHECK_EQ(link.send(), std::string("b0, b2, (nothing)"));  // b1 does not go again
}

TEST(what_is_wanted_does_not_count_as_overtaking) {
  Budget budget;
  Link link(2 * kPiece, &budget);
  Pieces a('a', 2, 0), b('b', 2, -5), c('c', 1, 1);
  link.order.submit(a, Readiness::ready);
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (credit)"));
  link.order.wanted(b, 0);
  link.order.wanted(b, 1);
  CHECK_EQ(link.send(), std::string("b0 wanted, b1 wanted, (nothing)"));
  Pieces d('d', 1, -1);
  link.order.submit(d, Readiness::ready);
  CHECK_EQ(link.send(), std::string("(credit)"));  // less urgent than a, which was sent last in its order
  link.order.submit(c, Readiness::ready);
  CHECK_EQ(link.send(), std::string("c0 overtakes, (credit)"));
}

TEST(the_first_two_go_before_the_first_answer_whatever_was_wanted) {
  Budget budget;
  Link link(64 * kPiece, &budget);
  Pieces a('a', 6);
  link.order.submit(a, Readiness::ready);
  link.order.wanted(a, 4);
  link.order.wanted(a, 5);
  CHECK_EQ(link.send(), std::string("a4 wanted, a5 wanted, a0, a1, (first answer)"));
}

TEST(what_is_wanted_and_waits_for_an_answer_goes_at_once_and_not_again) {
  Budget budget;
  Link link(64 * kPiece, &budget);
  Pieces a('a', 4);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (first answer)"));
  link.order.wanted(a, 2);
  CHECK_EQ(link.send(), std::string("a2 wanted, (first answer)"));
  link.order.answered(a, 2);
  CHECK_EQ(link.send(), std::string("a3, (nothing)"));
}

TEST(compressed_pieces_cannot_be_wanted) {
  Budget budget;
  Link link(kPiece, &budget);
  Pieces a('a', 1), b('b', 2);
  b.in_step = false;
  link.order.submit(a, Readiness::ready);
  link.order.submit(b, Readiness::one_by_one);
  link.order.ready(b, 0);
  CHECK_EQ(link.send(), std::string("a0, (credit)"));
  link.order.wanted(b, 0);
  link.order.wanted(b, 1);
  CHECK_EQ(link.send(), std::string("(credit)"));
}

// ---- RESEND

TEST(what_is_asked_for_again_goes_first_waits_for_no_answer_and_needs_room) {
  Budget budget;
  Link link(4 * kPiece, &budget);
  Pieces a('a', 3), b('b', 3);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (first answer)"));
  link.order.submit(b, Readiness::ready);
  link.order.ask_again(a, 1);
  CHECK(a.state_of(1) == PieceState::again);
  CHECK_EQ(link.send(), std::string("a1 again, b0, (credit)"));
  CHECK(a.state_of(1) == PieceState::sent);
  link.order.ask_again(a, 0);
  CHECK_EQ(link.send(), std::string("(credit)"));
  link.credit(1);
  CHECK_EQ(link.send(), std::string("a0 again, (credit)"));
}

TEST(what_is_asked_for_twice_before_it_goes_goes_once) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 1);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, (nothing)"));
  link.order.ask_again(a, 0);
  link.order.ask_again(a, 0);
  CHECK_EQ(link.send(), std::string("a0 again, (nothing)"));
  link.order.ask_again(a, 0);  // it has not kept that one either
  CHECK_EQ(link.send(), std::string("a0 again, (nothing)"));
}

TEST(what_is_answered_all_the_same_does_not_go_again) {
  Link link(kPiece, nullptr);
  Pieces a('a', 2);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, (credit)"));
  link.order.ask_again(a, 0);
  link.answer(a, 0);
  link.order.ask_again(a, 0);  // nor when it is asked for after that
  CHECK(a.state_of(0) == PieceState::answered);
  CHECK_EQ(link.send(), std::string("a1, (nothing)"));
}

// ---- the budget of all links

namespace {

// Several links and a budget of one piece, which `filler` has in flight.
struct FullBudget {
  Budget budget;
  Link filler{kPiece, &budget};
  Pieces filling{'f', 1};
  FullBudget() {
    filler.order.submit(filling, Readiness::ready);
    CHECK_EQ(filler.send(), std::string("f0, (nothing)"));
  }
};

}  // namespace

TEST(links_take_turns_by_the_part_of_their_own_pieces_that_went) {
  FullBudget full;
  Link big(64 * kPiece, &full.budget, 0, false), small(64 * kPiece, &full.budget, 1u << 30, false);
  Pieces a('a', 4), b('b', 2);
  a.in_step = b.in_step = false;
  small.order.submit(b, Readiness::ready);
  CHECK_EQ(small.send(), std::string("(turn)"));
  big.order.submit(a, Readiness::ready);
  CHECK_EQ(big.send(), std::string("(turn)"));
  std::string order;
  Link* last = &full.filler;
  for (int i = 0; i < 6; ++i) {
    last->credit(1);
    CHECK_EQ(big.nudges + small.nudges, 1);
    last = big.nudges > 0 ? &big : &small;
    last->nudges = 0;
    order += last->send_one() + " ";
    last->send();  // and it waits again
  }
  CHECK_EQ(order, std::string("a0 b0 a1 a2 b1 a3 "));  // after 0 1/8 1/4 1/2 5/8 3/4 of their own
}

TEST(the_most_urgent_piece_of_all_links_is_next_and_its_link_is_nudged) {
  FullBudget full;
  Link one(64 * kPiece, &full.budget, 0, false), other(64 * kPiece, &full.budget, 0, false);
  Pieces a('a', 1, 1, 5), b('b', 1, 2, 6), c('c', 1, 2, 7);
  one.order.submit(a, Readiness::ready);
  CHECK_EQ(one.send(), std::string("(turn)"));
  other.order.submit(c, Readiness::ready);
  CHECK_EQ(other.send(), std::string("(turn)"));
  one.order.submit(b, Readiness::ready);  // as urgent as c, and earlier
  CHECK_EQ(one.send(), std::string("(turn)"));
  full.filler.credit(1);
  CHECK_EQ(one.nudges, 1);
  CHECK_EQ(other.send(), std::string("(turn)"));  // there is room, but it is not its turn
  CHECK_EQ(one.send(), std::string("b0, (turn)"));
  one.credit(1);
  CHECK_EQ(other.nudges, 1);
  CHECK_EQ(other.send(), std::string("c0, (nothing)"));
  other.credit(1);
  CHECK_EQ(one.send(), std::string("a0, (nothing)"));
}

TEST(servers_of_this_machine_are_not_in_the_budget) {
  FullBudget full;
  Link near(64 * kPiece, nullptr);
  Pieces a('a', 3);
  near.order.submit(a, Readiness::ready);
  CHECK_EQ(near.send(), std::string("a0, a1, a2, (nothing)"));
}

namespace {

// A budget that says what it is told to.
struct FakeBudget final : SharedBudget {
  bool admits = true;
  int admitted = 0, passed = 0, withdrawn = 0;
  uint64_t received_bytes = 0, lost_bytes = 0;
  Place asked;
  bool admit(Sender&, const Place& place, uint64_t, int64_t) override {
    asked = place;
    admitted += admits;
    return admits;
  }
  void pass(Sender&, uint64_t, int64_t) override { ++passed; }
  void withdraw(Sender&) override { ++withdrawn; }
  void received(uint64_t bytes, int64_t, const RoundTrip&) override { received_bytes += bytes; }
  void lost(uint64_t bytes) override { lost_bytes += bytes; }
  uint64_t part(uint64_t, uint64_t) override { return part_bytes; }
  uint64_t part_bytes = UINT64_MAX / 2;
};

struct Owner final : SharedBudget::Sender, SendOrder::Sizes {
  void nudge() override {}
  uint32_t wire_bytes(const Transfer&, uint32_t) const override { return kPiece; }
};

}  // namespace

TEST(the_budget_is_told_priority_submission_progress_and_turn) {
  FakeBudget budget;
  budget.admits = false;
  Owner owner;
  SendOrder order(64 * kPiece, &budget, /*turn=*/1u << 30, owner, owner);
  Pieces a('a', 0, 7, 42);
  a.pieces = {10, 11, 12, 13};
  order.submit(a, Readiness::ready);
  CHECK(order.next(0).wait == WaitReason::turn);
  CHECK_EQ(budget.asked.priority, 7);
  CHECK_EQ(budget.asked.submitted_ns, int64_t{42});
  CHECK_EQ(budget.asked.piece, uint32_t{10});
  CHECK_EQ(budget.asked.progress, uint64_t{1} << 28);  // of 2^32: a quarter of a quarter, its turn
  budget.admits = true;
  order.sent(order.next(0), 0);
  order.next(0);
  CHECK_EQ(budget.asked.progress, (uint64_t{1} << 30) + (uint64_t{1} << 28));
}

TEST(links_that_are_equally_far_go_by_their_turn_which_differs_between_workers) {
  for (const uint32_t child : {0u, 1u}) {
    FakeBudget budget;
    budget.admits = false;
    SharedBudget::Place places[2];
    for (const uint32_t server : {0u, 1u}) {
      Owner owner;
      SendOrder order(64 * kPiece, &budget, turn_of(server, 2, 0, child, 2), owner, owner);
      Pieces a('a', 3);
      order.submit(a, Readiness::ready);
      order.next(0);
      places[server] = budget.asked;
    }
    CHECK(places[child].before(places[1 - child]));
  }
}

TEST(a_link_waits_for_its_turn_and_withdraws_when_it_has_nothing_to_send) {
  FakeBudget budget;
  budget.admits = false;
  Owner owner;
  SendOrder order(64 * kPiece, &budget, 0, owner, owner);
  Pieces a('a', 1);
  order.submit(a, Readiness::ready);
  CHECK(order.next(0).wait == WaitReason::turn);
  CHECK_EQ(budget.withdrawn, 0);
  order.forget(a);
  CHECK(order.next(0).wait == WaitReason::nothing_to_send);
  CHECK_EQ(budget.withdrawn, 1);
  order.next(0);
  CHECK_EQ(budget.withdrawn, 1);  // once
}

TEST(a_connection_that_breaks_gives_back_what_it_had_of_the_budget) {
  FakeBudget budget;
  Owner owner;
  SendOrder order(64 * kPiece, &budget, 0, owner, owner);
  Pieces a('a', 3);
  a.in_step = false;
  order.submit(a, Readiness::ready);
  for (int i = 0; i < 2; ++i) order.sent(order.next(0), 0);
  budget.admits = false;
  CHECK(order.next(0).wait == WaitReason::turn);
  order.disconnected();
  CHECK_EQ(budget.lost_bytes, 2 * kPiece);
  CHECK_EQ(budget.received_bytes, 0u);  // nothing was carried
  CHECK_EQ(budget.withdrawn, 1);
}

TEST(a_link_has_no_more_in_flight_than_its_part_of_the_budget) {
  FakeBudget budget;
  budget.part_bytes = 2 * kPiece;
  Owner owner;
  SendOrder order(64 * kPiece, &budget, 0, owner, owner);
  Pieces a('a', 3);
  a.in_step = false;
  order.submit(a, Readiness::on_demand);
  for (int i = 0; i < 2; ++i) {
    order.prepared(order.next(0));
    order.sent(order.next(0), 0);
  }
  order.prepared(order.next(0));
  CHECK(order.next(0).wait == WaitReason::credit);
  budget.part_bytes = 3 * kPiece;
  CHECK(order.next(0).what == NextStep::Do::send);
}

TEST(what_overtakes_passes_the_budget) {
  FakeBudget budget;
  Owner owner;
  SendOrder order(64 * kPiece, &budget, 0, owner, owner);
  Pieces a('a', 1, 0), b('b', 1, 1), c('c', 1, 2);
  order.submit(a, Readiness::ready);
  order.sent(order.next(0), 0);
  budget.admits = false;
  order.submit(b, Readiness::ready);
  NextStep step = order.next(0);
  CHECK(step.what == NextStep::Do::send && step.reason == SendReason::overtakes && step.transfer == &b);
  order.sent(step, 0);
  CHECK_EQ(budget.passed, 1);
  order.submit(c, Readiness::ready);
  CHECK(order.next(0).wait == WaitReason::turn);  // one at a time
  order.credit(kPiece, 0, no_round_trip);
  CHECK(order.next(0).reason == SendReason::overtakes);
}

TEST(what_is_refused_or_fails_gives_its_room_back) {
  FakeBudget budget;
  Owner owner;
  SendOrder order(64 * kPiece, &budget, 0, owner, owner);
  Pieces a('a', 2), b('b', 1);
  order.submit(a, Readiness::ready);
  order.refused(order.next(0), 0);
  CHECK_EQ(budget.received_bytes, uint64_t{kPiece});
  CHECK_EQ(order.sent_bytes(), uint64_t{0});
  CHECK(a.state_of(0) == PieceState::sent);  // it is answered like a contribution
  order.failed(order.next(0), 0);
  CHECK_EQ(budget.received_bytes, uint64_t{2 * kPiece});
  CHECK(order.next(0).wait == WaitReason::nothing_to_send);
  order.submit(b, Readiness::ready);
  CHECK(order.next(0).transfer == &b);
}

// ---- the end of an operation

TEST(what_is_forgotten_leaves_nothing_in_any_queue) {
  Budget budget;
  Link link(64 * kPiece, &budget);
  auto a = std::make_unique<Pieces>('a', 5);
  Pieces b('b', 1);
  link.order.submit(*a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (first answer)"));
  link.order.wanted(*a, 3);
  link.order.ask_again(*a, 0);
  link.order.forget(*a);
  a.reset();  // AddressSanitizer looks
  CHECK_EQ(link.send(), std::string("(nothing)"));
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("b0, (nothing)"));
}

TEST(a_transfer_is_as_new_when_its_tensor_is_submitted_again) {
  Budget budget;
  Link link(2 * kPiece, &budget);
  Pieces a('a', 3);
  for (int round = 0; round < 3; ++round) {
    link.order.submit(a, Readiness::ready);
    CHECK_EQ(link.send(), std::string("a0, a1, (first answer)"));
    link.order.wanted(a, 2);
    link.answer(a, 0);
    CHECK_EQ(link.send(), std::string("a2 wanted, (nothing)"));
    for (const uint32_t position : {1, 2}) link.answer(a, position);
    link.order.forget(a);
  }
}

TEST(the_last_piece_says_what_left_before_it) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 2, 0), b('b', 3, 5);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.order.sent(link.order.next(0), 0), uint64_t{0});
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.order.sent(link.order.next(0), 0), uint64_t{0});
  CHECK_EQ(link.order.sent(link.order.next(0), 0), uint64_t{0});
  CHECK_EQ(link.order.sent(link.order.next(0), 0), uint64_t{0});  // of b: nobody left between its own
  CHECK_EQ(link.order.sent(link.order.next(0), 0), uint64_t{3 * kPiece});
  link.order.ask_again(a, 1);
  CHECK_EQ(link.order.sent(link.order.next(0), 0), uint64_t{0});  // once in an operation
}
