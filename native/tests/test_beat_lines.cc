// Beats over two lines, in virtual time: a TCP that tries again ever more rarely, and links that go away.
#include "liveness/beat_lines.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "tests/check.h"

using namespace byteps;

namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;
constexpr int64_t kStep = kMs, kFirstTry = 200 * kMs;

struct Outage {
  int64_t from, to;
  bool there = true, back = true;  // which way is cut
};

// One direction of a connection: what is not acknowledged is sent again, after twice as long each time.
struct Connection {
  bool outstanding = false;
  int64_t next_try = 0, pause = 0;
  bool heard = false;  // the other end has the beat, whether we know that or not
};

struct World {
  World(BeatTimes times, size_t lines, std::vector<Outage> outages)
      : times(times), beats(times, 0), connections(lines), outages(std::move(outages)) {
    for (size_t i = 0; i < lines; ++i) beats.add_line();
  }

  bool passes(int64_t now, bool back) const {
    return std::none_of(outages.begin(), outages.end(), [&](const Outage& o) {
      return now >= o.from && now < o.to && (back ? o.back : o.there);
    });
  }

  void transmit(Connection& c, int64_t now) {
    if (passes(now, false)) {
      if (!std::exchange(c.heard, true)) {
        longest = std::max(longest, now - heard);
        heard = now;
      }
      c.outstanding = !passes(now, true);
      if (!c.outstanding) return;
    }
    c.next_try = now + c.pause;
    c.pause *= 2;
  }

  // `phase`: when the rounds of beats happen.
  void run(int64_t until, int64_t phase) {
    int64_t round = phase;
    for (int64_t now = 0; now < until; now += kStep) {
      for (size_t i = 0; i < connections.size(); ++i) {
        Connection& c = connections[i];
        if (c.outstanding && now >= c.next_try) transmit(c, now);
      }
      if (now < round && now < beats.last_moment_ns()) continue;
      if (now >= round) round += times.interval_ns;
      for (size_t i = 0; i < connections.size(); ++i) {
        if (beats.outstanding(i) && !connections[i].outstanding) beats.acknowledged(i);
      }
      if (const auto line = beats.next(now)) {
        CHECK(!connections[*line].outstanding);
        connections[*line] = {true, 0, kFirstTry};
        transmit(connections[*line], now);
      }
    }
    longest = std::max(longest, until - heard);
  }

  const BeatTimes times;
  BeatLines beats;
  std::vector<Connection> connections;
  const std::vector<Outage> outages;
  int64_t heard = 0, longest = 0;  // silence as the other end sees it
};

unsigned seed() {
  const char* text = std::getenv("BYTEPS_TEST_SEED");
  return text ? static_cast<unsigned>(std::atoll(text)) : 1;
}

}  // namespace

TEST(in_health_the_lines_take_turns_once_an_interval) {
  const BeatTimes times{kSecond, 10 * kSecond};
  World world(times, 2, {});
  world.run(100 * kSecond, 300 * kMs);
  CHECK_EQ(world.longest, kSecond);
}

TEST(an_outage_within_the_promise_is_never_taken_for_a_loss) {
  std::mt19937_64 random(seed());
  std::cout << "seed " << seed() << " (BYTEPS_TEST_SEED)\n";
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t timeout = std::uniform_int_distribution<int64_t>(1 * kSecond, 30 * kSecond)(random);
    const int64_t interval = std::uniform_int_distribution<int64_t>(timeout / 50, timeout / 4)(random);
    const BeatTimes times{interval, timeout};
    const int64_t promised = timeout - interval - times.margin_ns() - 2 * kStep;
    const int64_t length = std::uniform_int_distribution<int64_t>(promised / 2, promised)(random);
    const int64_t from = std::uniform_int_distribution<int64_t>(interval, 5 * interval)(random);
    const int ways = static_cast<int>(random() % 3);
    World world(times, 2, {{from, from + length, ways != 1, ways != 2}});
    world.run(from + 5 * timeout, static_cast<int64_t>(random() % static_cast<uint64_t>(interval)));
    CHECK(world.longest < times.limit_ns());
    if (world.longest >= times.limit_ns()) {
      std::cout << "trial " << trial << ": time-out " << timeout << " interval " << interval << " away from "
                << from << " for " << length << ", ways " << ways << ", silent for " << world.longest << "\n";
    }
  }
}

// One line is not enough: this is what was wrong.
TEST(one_line_alone_does_not_keep_the_promise) {
  const BeatTimes times{kSecond, 10 * kSecond};
  World world(times, 1, {{5 * kSecond, 13 * kSecond}});
  world.run(40 * kSecond, 500 * kMs);
  CHECK(world.longest >= times.limit_ns());
}

TEST(after_an_outage_beats_come_every_interval_again) {
  const BeatTimes times{kSecond, 10 * kSecond};
  World world(times, 2, {{5 * kSecond, 13 * kSecond}});
  world.run(20 * kSecond, 0);
  CHECK(world.heard > 20 * kSecond - 2 * kSecond);
  // Both lines are clean again after as long as the link was away; then a second outage is as harmless.
  World twice(times, 2, {{5 * kSecond, 13 * kSecond}, {22 * kSecond, 30 * kSecond}});
  twice.run(60 * kSecond, 0);
  CHECK(twice.longest < times.limit_ns());
}

TEST(a_slow_acknowledgement_is_waited_for) {
  // A round trip takes longer than an interval: no line gets a beat before its last one has arrived.
  const BeatTimes times{100 * kMs, 3 * kSecond};
  BeatLines beats(times, 0);
  beats.add_line();
  beats.add_line();
  CHECK_EQ(beats.next(0).value_or(9), 0u);
  CHECK(!beats.next(100 * kMs).has_value());
  CHECK_EQ(beats.last_moment_ns(), 3100 * kMs - 150 * kMs);
  beats.acknowledged(0);
  CHECK_EQ(beats.next(200 * kMs).value_or(9), 1u);
}
