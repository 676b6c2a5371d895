// A connection is cut when the kernel's questions stay without an answer, and not before.
#include "transport/tcp/reach.h"

#include "tests/check.h"

using namespace byteps;

namespace {

constexpr int64_t kSecond = kNanosecondsPerSecond;
constexpr int64_t kLimit = 10 * kSecond + 2 * kSecond + kSecond / 2;  // of the connection below

Reach reach() { return Reach(10 * kSecond, 2 * kSecond); }

}  // namespace

TEST(silence_is_no_cut_while_nothing_is_asked) {
  Reach r = reach();
  for (int64_t s = 0; s < 1000; ++s) CHECK_EQ(r.cut_for_ns(s * kSecond, {0, 77}), 0);
}

TEST(questions_without_an_answer_are_a_cut_after_the_limit) {
  Reach r = reach();
  int64_t now = 0;
  for (; now < kLimit; now += kSecond) CHECK_EQ(r.cut_for_ns(now, {5, 77}), 0);
  CHECK_EQ(r.cut_for_ns(now, {5, 77}), now);
}

TEST(idleness_before_the_first_question_does_not_count) {
  Reach r = reach();
  CHECK_EQ(r.cut_for_ns(0, {0, 77}), 0);
  CHECK_EQ(r.cut_for_ns(3600 * kSecond, {3, 77}), 0);
  CHECK_EQ(r.cut_for_ns(3605 * kSecond, {4, 77}), 0);
}

TEST(an_answer_begins_anew) {
  Reach probed = reach();  // fewer are unanswered than before
  CHECK_EQ(probed.cut_for_ns(0, {5, 77}), 0);
  CHECK_EQ(probed.cut_for_ns(11 * kSecond, {3, 77}), 0);
  CHECK_EQ(probed.cut_for_ns(20 * kSecond, {9, 77}), 0);
  CHECK(probed.cut_for_ns(24 * kSecond, {9, 77}) > 0);
  Reach sending = reach();  // bytes were acknowledged, and more are in flight that are not
  CHECK_EQ(sending.cut_for_ns(0, {3, 77}), 0);
  CHECK_EQ(sending.cut_for_ns(11 * kSecond, {3, 99}), 0);
  CHECK_EQ(sending.cut_for_ns(20 * kSecond, {3, 99}), 0);
  CHECK(sending.cut_for_ns(24 * kSecond, {3, 99}) > 0);
  Reach closed_window = reach();  // a probe now and then, each answered
  for (int64_t s = 0; s < 1000; s += 7) {
    CHECK_EQ(closed_window.cut_for_ns(s * kSecond, {static_cast<unsigned>(s % 2), 77}), 0);
  }
}

TEST(one_or_two_lost_questions_prove_nothing) {
  Reach r = reach();
  for (int64_t s = 0; s < 100; ++s) CHECK_EQ(r.cut_for_ns(s * kSecond, {2, 77}), 0);
}

TEST(the_next_try_after_the_tolerated_silence_has_its_chance) {
  // Before Linux 6.15 the pause between two tries grows up to two minutes: as long again as it has lasted.
  Reach old(10 * kSecond, 120 * kSecond);
  CHECK_EQ(old.cut_for_ns(0, {3, 77}), 0);
  CHECK_EQ(old.cut_for_ns(20 * kSecond, {6, 77}), 0);
  CHECK(old.cut_for_ns(21 * kSecond, {6, 77}) > 0);
}
