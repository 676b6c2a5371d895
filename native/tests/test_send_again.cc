// A connection breaks: what was in flight goes again, first of all, and nothing else changes. Without a
// socket.
#include <string>

#include "tests/check.h"
#include "tests/ordered_link.h"
#include "worker/send_order.h"

using namespace byteps;
using namespace byteps::testing;
using Readiness = SendOrder::Readiness;

TEST(what_has_no_answer_goes_again_before_everything_else) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 4, 1), b('b', 2, 5);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send_one(), std::string("a0"));
  CHECK_EQ(link.send_one(), std::string("a1"));
  CHECK_EQ(link.send_one(), std::string("a2"));
  link.order.answered(a, 1);
  link.order.disconnected();
  CHECK_EQ(link.order.send_again(a), 2u);
  link.order.submit(b, Readiness::ready);  // more urgent, but nobody waits for it
  CHECK_EQ(link.order.sent_bytes(), 0u);
  CHECK_EQ(link.send(), std::string("a0 again, a2 again, b0, b1, a3, (nothing)"));
}

TEST(what_was_in_flight_takes_no_room_and_credit_counts_from_zero) {
  Link link(2 * kPiece, nullptr);
  Pieces a('a', 5);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (credit)"));
  link.credit(1);
  CHECK_EQ(link.send(), std::string("a2, (credit)"));
  link.order.answered(a, 0);
  link.order.disconnected();
  CHECK_EQ(link.order.send_again(a), 2u);
  CHECK_EQ(link.order.received_bytes(), 0u);
  CHECK_EQ(link.send(), std::string("a1 again, a2 again, (credit)"));
  CHECK_EQ(link.order.sent_bytes(), 2 * kPiece);
  link.order.credit(kPiece, 0, [] { return int64_t{0}; });
  CHECK_EQ(link.order.received_bytes(), kPiece);
  CHECK_EQ(link.send(), std::string("a3, (credit)"));
}

TEST(what_the_server_had_asked_for_again_goes_once) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 2);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, (nothing)"));
  link.order.ask_again(a, 0);
  link.order.disconnected();
  CHECK_EQ(link.order.send_again(a), 1u);
  CHECK_EQ(link.send(), std::string("a0 again, a1 again, (nothing)"));
}

TEST(twice_in_a_row_is_once) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 3);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send_one(), std::string("a0"));
  for (int i = 0; i < 3; ++i) {
    link.order.disconnected();
    link.order.send_again(a);
  }
  CHECK_EQ(link.send(), std::string("a0 again, a1, a2, (nothing)"));
}

TEST(an_operation_that_ends_before_it_is_sent_again_leaves_nothing) {
  Link link(64 * kPiece, nullptr);
  Pieces a('a', 3), b('b', 1);
  link.order.submit(a, Readiness::ready);
  CHECK_EQ(link.send(), std::string("a0, a1, a2, (nothing)"));
  link.order.disconnected();
  link.order.send_again(a);
  link.order.forget(a);
  link.order.submit(b, Readiness::ready);
  CHECK_EQ(link.send(), std::string("b0, (nothing)"));
}
