// The window to a server follows what the link carries, between two pieces and the credit.
#include "base/tuning.h"
#include "worker/window.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/check.h"

using namespace byteps;

namespace {

constexpr uint64_t kMB = 1 << 20, kPiece = 128 * 1024;
constexpr int64_t kMillisecond = 1'000'000;

// Sends all the window admits, for so long, over a link that carries `rate` bytes per ms and answers after
// `delay_ms`; the mean rate at which the server got them.
double drive(Window& window, uint64_t rate, int64_t delay_ms, int64_t for_ms, int64_t rtt_ns = 0) {
  static int64_t now_ms = 0;                          // goes on from one call to the next, as a clock does
  std::vector<std::pair<int64_t, uint64_t>> answers;  // when, and the total at that time
  const uint64_t before = window.received_bytes();
  double wire_ms = static_cast<double>(now_ms);
  const int64_t end = now_ms + for_ms;
  size_t at = 0;
  for (; now_ms < end; ++now_ms) {
    for (; at < answers.size() && answers[at].first <= now_ms; ++at)
      window.received(answers[at].second, now_ms * kMillisecond, [&] { return rtt_ns; });
    while (window.admits(kPiece)) {
      window.sent(kPiece, now_ms * kMillisecond);
      wire_ms = std::max(wire_ms, static_cast<double>(now_ms)) + double{kPiece} / static_cast<double>(rate);
      answers.push_back({static_cast<int64_t>(wire_ms) + delay_ms, window.sent_bytes()});
    }
  }
  const double carried = static_cast<double>(window.received_bytes() - before);
  if (at <
      answers.size()) {  // what is left comes in a moment, and the next call begins with nothing in flight
    now_ms = answers.back().first + 1;
    window.received(answers.back().second, now_ms * kMillisecond, [&] { return rtt_ns; });
  }
  return carried / static_cast<double>(for_ms);
}

}  // namespace

TEST(a_slow_link_gets_a_small_window_and_stays_busy) {
  Window window(16 * kMB, false);
  CHECK_EQ(window.bytes(), tuning::kFirstWindowBytes);
  drive(window, 6 * 1024, 0, 2000);
  CHECK_EQ(window.bytes(), 2 * kPiece);
  CHECK(drive(window, 6 * 1024, 0, 2000) > 0.95 * 6 * 1024);
}

TEST(a_fast_link_gets_what_it_can_carry_up_to_the_credit) {
  constexpr uint64_t kHeld = tuning::kWindowHoldNs / kMillisecond * kMB;
  Window window(64 * kMB, false);
  drive(window, kMB, 1, 1000);
  CHECK(window.bytes() > kHeld * 9 / 10 && window.bytes() < kHeld * 12 / 10);
  Window less(2 * kMB, false);
  drive(less, kMB, 1, 1000);
  CHECK_EQ(less.bytes(), 2 * kMB);
}

TEST(a_long_link_gets_its_round_trip_on_top) {
  Window window(64 * kMB, false);
  drive(window, 100 * 1024, 80, 5000, 80 * kMillisecond);
  CHECK(drive(window, 100 * 1024, 80, 2000, 80 * kMillisecond) > 0.8 * 100 * 1024);
}

TEST(a_pause_of_others_does_not_make_it_small) {
  Window window(16 * kMB, false);
  drive(window, 200 * 1024, 1, 500);
  const uint64_t before = window.bytes();
  drive(window, 1024, 1, 50);
  CHECK(window.bytes() > before / 2);
  drive(window, 1024, 1, 5000);  // but a link that has become slow does
  CHECK_EQ(window.bytes(), 2 * kPiece);
}

TEST(memory_and_no_limit_stay_as_they_are) {
  Window same_machine(768 * 1024, true);
  drive(same_machine, 1024, 50, 1000);
  CHECK_EQ(same_machine.bytes(), 768u * 1024);
  Window unlimited(0, false);
  CHECK(!unlimited.limited());
  for (int i = 0; i < 1000; ++i) {
    CHECK(unlimited.admits(kMB));
    unlimited.sent(kMB, i);
  }
}

TEST(the_first_piece_always_may) {
  Window window(1000, false);
  CHECK(window.admits(5000));
  window.sent(5000, 0);
  CHECK(!window.admits(1));
}
