// Rounds of children that do not wait for each other: taken once each, and a first value for who waits.
#include "aggregator/lone_rounds.h"

#include "tests/check.h"

using byteps::LoneRounds;

TEST(each_child_counts_its_own_rounds) {
  LoneRounds rounds;
  rounds.make_room(2);
  CHECK(!rounds.taken(0, 0));
  rounds.take(0, 0);
  rounds.take(0, 1);
  rounds.make_room(2);
  CHECK(rounds.taken(0, 0) && rounds.taken(0, 1) && !rounds.taken(0, 2));
  CHECK(!rounds.taken(1, 0));
  rounds.take(0, 0);  // an echo takes nothing back
  CHECK(rounds.taken(0, 1));
}

TEST(who_waits_is_answered_once) {
  LoneRounds rounds;
  rounds.make_room(3);
  rounds.wait(2, {7, 0});
  rounds.wait(2, {8, 0});  // it has connected anew, through another rank
  CHECK(rounds.taken(2, 0));
  int answered = 0;
  const auto answer = [&](LoneRounds::Waiting waiting) {
    ++answered;
    CHECK_EQ(waiting.rank, 8);
    CHECK_EQ(waiting.round, 0u);
  };
  rounds.release(answer);
  rounds.release(answer);
  CHECK_EQ(answered, 1);
}
