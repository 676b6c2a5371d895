// Spinning before a sleep: only as long as it pays.
#include "base/spin.h"

#include "tests/check.h"

using namespace byteps;

TEST(a_thread_spins_until_it_was_in_vain_several_times) {
  SpinScore score;
  int spins = 0;
  while (score.worth() && spins < 100) {
    ++spins;
    score.spun(false);
  }
  CHECK_EQ(spins, SpinScore::kMost / SpinScore::kLoss);
}

TEST(then_it_tries_again_now_and_then) {
  SpinScore score;
  for (int i = 0; i < SpinScore::kMost; ++i) score.spun(false);
  uint32_t spins = 0;
  for (uint32_t wait = 0; wait < 10 * SpinScore::kTryAgain; ++wait) {
    if (!score.worth()) continue;
    ++spins;
    score.spun(false);
  }
  CHECK_EQ(spins, 10u);
}

TEST(one_that_pays_makes_the_next_one_spin) {
  SpinScore score;
  for (int i = 0; i < SpinScore::kMost; ++i) score.spun(false);
  while (!score.worth()) {
  }
  score.spun(true);
  CHECK(score.worth());
  score.spun(false);
  CHECK(!score.worth());
}

TEST(much_success_does_not_outweigh_the_present) {
  SpinScore score;
  for (int i = 0; i < 1000; ++i) score.spun(true);
  for (int i = 0; i < SpinScore::kMost / SpinScore::kLoss; ++i) score.spun(false);
  CHECK(!score.worth());
}

TEST(spinning_ends_with_the_news_or_with_the_time) {
  int looks = 0;
  CHECK(spin_until(kNanosecondsPerSecond, [&] { return ++looks == 100; }));
  CHECK_EQ(looks, 100);
  const int64_t began = machine_now_ns();
  CHECK(!spin_until(1'000'000, [] { return false; }));
  CHECK(machine_now_ns() - began >= 1'000'000);
}
