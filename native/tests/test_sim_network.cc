// The simulated network itself: its time, what can happen to a connection, and that a seed repeats it all.
#include "transport/sim/network.h"

#include <string>

#include "base/error.h"
#include "tests/transports.h"
#include "transport/sim/wire.h"

using namespace byteps;
using byteps::testing::Member;
using byteps::testing::Payload;
using sim::Network;
using sim::WireOptions;

namespace {

constexpr int64_t kMillisecond = 1'000'000;

// Two members over a wire that the test can cut.
struct Line {
  explicit Line(const WireOptions& options, uint64_t seed = 1, int64_t tolerated_ns = 0) : network(seed) {
    auto connection = network.connect(options);
    wire = connection.wire;
    a.open(std::move(connection.first), {7, 1, false, tolerated_ns});
    b.open(std::move(connection.second), {7, 1, false, tolerated_ns});
  }
  // Everything that happens until then.
  void run_to(int64_t end_ns) {
    for (;;) {
      while (a.loop.turn(0) | b.loop.turn(0)) {
      }
      if (network.next_event_ns() > end_ns) break;
      network.advance(network.next_event_ns());
    }
    network.advance(end_ns);
  }
  void send(const Payload& payload) {
    a.queue(1, payload);
    a.link->flush();
  }

  Network network;
  std::shared_ptr<sim::Wire> wire;
  Member a, b;
};

}  // namespace

TEST(events_happen_in_the_order_of_time_and_then_of_their_making) {
  Network network(1);
  std::string order;
  network.at(20, [&] { order += "c"; });
  network.at(10, [&] {
    order += "a";
    network.at(5, [&] { order += "b"; });  // is over: at once
  });
  network.at(20, [&] { order += "d"; });
  network.at(30, [&] { order += "e"; });
  CHECK_EQ(network.next_event_ns(), 10);
  network.advance(20);
  CHECK_EQ(order, "abcd");
  CHECK_EQ(network.now_ns(), 20);
  network.advance(1);
  CHECK_EQ(network.now_ns(), 20);
  network.advance(100);
  CHECK_EQ(order, "abcde");
  CHECK_EQ(network.next_event_ns(), EventLoop::kNever);
}

TEST(a_frame_arrives_after_the_delay_and_not_before) {
  Line line({.delay_ns = 3 * kMillisecond});
  const Payload payload(100);
  line.send(payload);
  line.run_to(3 * kMillisecond - 1);
  CHECK_EQ(line.b.begun, 0u);
  CHECK(!line.a.link->delivered());
  line.run_to(3 * kMillisecond);
  CHECK_EQ(line.b.got.size(), 1u);
  CHECK_EQ(line.a.link->round_trip_ns(), 0);
  line.run_to(6 * kMillisecond);
  CHECK(line.a.link->delivered());
  CHECK_EQ(line.a.link->round_trip_ns(), 6 * kMillisecond);
}

TEST(bytes_take_the_time_that_the_bandwidth_gives_them) {
  Line line({.delay_ns = kMillisecond, .bytes_per_s = 1e8, .send_bytes = 4 << 20, .receive_bytes = 4 << 20});
  const Payload payload(1'000'000 - kHeaderBytes);
  line.send(payload);
  line.run_to(11 * kMillisecond - 1000);
  CHECK_EQ(line.b.got.size(), 0u);
  line.run_to(11 * kMillisecond + 1000);
  CHECK_EQ(line.b.got.size(), 1u);
}

TEST(a_connection_is_lost_at_its_moment_and_both_ends_notice) {
  Line line({.delay_ns = kMillisecond, .bytes_per_s = 1e8});
  const Payload payload(10'000'000);  // 100 ms
  line.network.at(50 * kMillisecond, [&] { line.wire->lose(); });
  line.send(payload);
  line.run_to(50 * kMillisecond - 1);
  CHECK(line.a.ends == 0 && line.b.ends == 0 && line.b.begun == 1);
  line.run_to(50 * kMillisecond);
  for (const Member* member : {&line.a, &line.b}) {
    CHECK_EQ(member->ends, 1);
    CHECK(member->ended == Link::End::closed);
    CHECK_EQ(member->reason, "connection lost");
  }
  CHECK(line.b.got.empty());
}

TEST(silence_is_noticed_by_who_watches_and_by_nobody_else) {
  Line line({.delay_ns = kMillisecond}, 1, 10 * kNanosecondsPerSecond);
  line.wire->silence();
  const Payload payload(1000);
  line.send(payload);
  for (int64_t second = 1; second <= 10; ++second) {
    line.run_to(second * kNanosecondsPerSecond);
    line.a.link->watch(true, second * kNanosecondsPerSecond);
    CHECK(line.a.link->alive());
  }
  CHECK(!line.a.link->delivered());
  line.a.link->watch(true, 11 * kNanosecondsPerSecond);
  CHECK(line.a.ended == Link::End::unreachable);
  CHECK_EQ(line.a.reason, "nothing came through for 10.0 s");
  line.run_to(3600 * kNanosecondsPerSecond);
  CHECK_EQ(line.b.ends, 0);  // not even of the close
}

TEST(a_network_that_heals_brings_everything_once_and_in_order) {
  Line line({.delay_ns = kMillisecond, .jitter_ns = kMillisecond, .segment_bytes = 1000, .ragged = true});
  std::vector<Payload> all;
  for (uint32_t i = 0; i < 40; ++i) all.push_back(Payload(20'000, static_cast<std::byte>(i)));
  for (uint32_t i = 0; i < 40; ++i) line.a.queue(i, all[i]);
  line.a.link->flush();
  for (int cut = 0; cut < 20; ++cut) {  // often in the middle of something
    line.run_to(line.network.now_ns() + kMillisecond);
    line.wire->silence();
    line.run_to(line.network.now_ns() + kNanosecondsPerSecond);
    if (cut == 19) line.a.link->close();  // it hears of that, too, but later
    line.wire->heal();
  }
  line.run_to(line.network.now_ns() + 10 * kNanosecondsPerSecond);
  CHECK(!line.b.got.empty());
  for (size_t i = 0; i < line.b.got.size(); ++i) {
    CHECK_EQ(line.b.got[i].header.key, i);
    CHECK(line.b.got[i].payload == all[i]);
  }
  CHECK(line.b.ended == Link::End::closed);
}

TEST(the_same_seed_gives_the_same_events) {
  const auto trace = [](uint64_t seed) {
    Line line({.jitter_ns = kMillisecond, .segment_bytes = 1500, .ragged = true, .receive_bytes = 5000},
              seed);
    const Payload payload(30'000);
    for (uint64_t i = 0; i < 20; ++i) line.a.queue(i, payload);
    const auto moment = static_cast<int64_t>(line.network.random(60)) * kMillisecond;
    line.network.at(moment, [&] { line.wire->lose(); });
    std::string text = std::to_string(moment);
    line.b.on_frame = [&] { text += " " + std::to_string(line.network.now_ns()); };
    line.a.link->flush();
    line.run_to(kNanosecondsPerSecond);
    return text + " " + std::to_string(line.b.link->traffic().received_bytes);
  };
  CHECK_EQ(trace(7), trace(7));
  CHECK(trace(7) != trace(8));
}
