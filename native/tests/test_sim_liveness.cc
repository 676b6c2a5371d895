// Heartbeats in a made time: what ten seconds of silence do, without waiting for them.
#include <optional>

#include "liveness/liveness.h"
#include "sim/process.h"
#include "tests/check.h"
#include "transport/sim/wire.h"

using namespace byteps;
using sim::Network;
using sim::Process;

namespace {

constexpr int64_t kSecond = kNanosecondsPerSecond;

// Two members with an interval of 1 s and a time-out of 10 s, and the two lines between them.
struct Pair {
  explicit Pair(double patience_of_other_s = 10) : other(7, 1, patience_of_other_s, second) {
    for (int line = 0; line < 2; ++line) {
      auto connection = network.connect({.delay_ns = 1'000'000});
      one.add(std::move(connection.first), 1);
      other.add(std::move(connection.second), 0);
      wires.push_back(connection.wire);
    }
  }
  // When the first member told something of the other one, if it did until then.
  std::optional<int64_t> told_until(int64_t end_ns) {
    while (network.next_event_ns() <= end_ns) {
      network.advance(network.next_event_ns());
      for (const Event& event : one.events().drain()) {
        kind = event.kind;
        return network.now_ns();
      }
    }
    network.advance(end_ns);
    return {};
  }

  Network network{1};
  Process first{network, 10'000}, second{network, 10'000};
  Liveness one{7, 1, 10, first}, other;
  std::vector<std::shared_ptr<sim::Wire>> wires;
  FailureKind kind = FailureKind::none;
};

}  // namespace

TEST(an_hour_of_beats_and_nobody_is_silent) {
  Pair pair;
  CHECK(!pair.told_until(3600 * kSecond));
  CHECK_EQ(pair.other.events().drain().size(), 0u);
}

TEST(a_member_that_stands_still_is_silent_after_the_time_out_and_an_interval) {
  Pair pair;
  CHECK(!pair.told_until(100 * kSecond));
  pair.second.freeze(3600 * kSecond);
  const auto told = pair.told_until(200 * kSecond);
  CHECK(told.has_value());
  CHECK(pair.kind == FailureKind::silent);
  CHECK(*told >= 110 * kSecond && *told <= 111 * kSecond + kSecond / 10);
}

TEST(who_stands_still_for_less_is_not_silent) {
  Pair pair;
  CHECK(!pair.told_until(100 * kSecond));
  pair.second.freeze(9 * kSecond);
  CHECK(!pair.told_until(300 * kSecond));
}

TEST(our_own_silence_is_not_theirs) {
  Pair pair(1000);
  CHECK(!pair.told_until(100 * kSecond));
  pair.first.freeze(60 * kSecond);  // what they said meanwhile lies unread
  CHECK(!pair.told_until(500 * kSecond));
}

TEST(a_network_that_is_away_for_less_than_is_tolerated_is_harmless) {
  for (int64_t away_ms = 500; away_ms <= 8500; away_ms += 250) {
    Pair pair;
    CHECK(!pair.told_until((100 * 1000 + away_ms) * kSecond / 1000));
    for (auto& wire : pair.wires) wire->silence();
    CHECK(!pair.told_until((100 * 1000 + 2 * away_ms) * kSecond / 1000));
    for (auto& wire : pair.wires) wire->heal();
    CHECK(!pair.told_until(300 * kSecond));
  }
}

TEST(a_network_that_stays_away_is_told) {
  Pair pair;
  CHECK(!pair.told_until(100 * kSecond));
  for (auto& wire : pair.wires) wire->silence();
  const auto told = pair.told_until(200 * kSecond);
  CHECK(told.has_value());
  CHECK(pair.kind == FailureKind::silent);
  CHECK(*told <= 111 * kSecond + kSecond / 10);
}

TEST(a_connection_that_is_lost_is_told_at_once) {
  Pair pair;
  CHECK(!pair.told_until(100 * kSecond));
  pair.wires[0]->lose();
  const auto told = pair.told_until(200 * kSecond);
  CHECK(told.has_value());
  CHECK(pair.kind == FailureKind::lost);
  CHECK(*told < 100 * kSecond + kSecond / 1000);
}
