// What a server does with what peers send, over real sockets: replay, order, conflicts, departures, bad
// frames.
#include "aggregator/aggregator.h"

#include <poll.h>

#include "base/tuning.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/raw_peer.h"

using namespace byteps;
using byteps::testing::RawPeer;
using byteps::testing::Wire;

namespace {

constexpr uint64_t kJob = 77;
constexpr uint32_t kEpoch = 4;

struct Server {
  explicit Server(uint16_t workers, bool asynchronous = false, std::vector<uint16_t> child_of = {}) {
    AggregatorSettings settings;
    settings.job = kJob;
    settings.epoch = byteps::testing::epoch_of(kEpoch, workers, child_of);
    settings.asynchronous = asynchronous;
    aggregator = std::make_unique<Aggregator>(settings);
  }
  std::unique_ptr<RawPeer> connect(uint16_t rank, Wire wire = Wire::unix_pair) {
    auto peer = std::make_unique<RawPeer>(kJob, kEpoch, rank, wire);
    aggregator->attach(0, rank, peer->other_end(), false);
    return peer;
  }
  void declare(uint32_t tensor, uint64_t bytes) { byteps::testing::declare(*aggregator, tensor, bytes); }
  // The first event that is not a log line.
  Event event() {
    for (int i = 0; i < 100; ++i) {
      pollfd waiting{aggregator->events().fileno(), POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) <= 0) break;
      for (Event& e : aggregator->events().drain()) {
        if (e.kind != FailureKind::none) return e;
      }
    }
    return {};
  }
  std::unique_ptr<Aggregator> aggregator;
};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The server has taken in all that this peer has pushed.
void expect_consumed(RawPeer& peer, uint64_t bytes) {
  uint64_t received = 0;
  while (received < bytes) {
    const auto frame = peer.receive();
    CHECK(frame && frame->header.type == FrameType::credit);
    if (!frame || frame->header.type != FrameType::credit) return;
    received = frame->header.received;
  }
  CHECK_EQ(received, bytes);
}

void expect_result(RawPeer& peer, uint32_t round, float first) {
  const auto frame = peer.receive();
  CHECK(frame.has_value());
  if (!frame) return;
  CHECK(frame->header.type == FrameType::result);
  CHECK_EQ(frame->header.round, round);
  CHECK_EQ(frame->floats()[0], first);
}

}  // namespace

TEST(a_repeated_push_counts_once) {
  Server server(2);
  auto a = server.connect(0), b = server.connect(1);
  server.declare(1, 8);
  a->push(1, 0, {1, 1});
  a->push(1, 0, {1, 1}, kFlagWantCredit);
  expect_consumed(*a, 16);  // both are there before the round is over
  b->push(1, 0, {4, 4});
  expect_result(*a, 0, 5);
  expect_result(*b, 0, 5);
  CHECK(a->silent());
}

TEST(a_worker_that_lost_its_connection_gets_the_result_again) {
  Server server(2);
  auto a = server.connect(0), b = server.connect(1);
  server.declare(1, 8);
  a->push(1, 0, {1, 1});
  b->push(1, 0, {4, 4});
  expect_result(*b, 0, 5);
  expect_result(*a, 0, 5);
  auto a2 = server.connect(0);  // takes the place of the old connection
  a2->push(1, 0, {1, 1});
  expect_result(*a2, 0, 5);
  // and the next round is a normal one
  a2->push(1, 1, {2, 2});
  b->push(1, 1, {8, 8});
  expect_result(*a2, 1, 10);
  expect_result(*b, 1, 10);
}

TEST(half_a_contribution_of_a_lost_connection_does_not_count) {
  Server server(2);
  auto a = server.connect(0), b = server.connect(1);
  server.declare(1, 8000);
  Header header;
  header.type = FrameType::push;
  header.job = kJob;
  header.epoch = kEpoch;
  header.sender = 0;
  header.key = make_key(1, 0);
  header.length = 8000;
  seal(header);
  a->send_bytes(&header, kHeaderBytes);
  const std::vector<float> half(1000, 100.0f);
  a->send_bytes(half.data(), 4000);
  a.reset();
  CHECK_EQ(server.event().kind, FailureKind::lost);
  auto a2 = server.connect(0);
  a2->push(1, 0, std::vector<float>(2000, 1.0f));
  b->push(1, 0, std::vector<float>(2000, 4.0f));
  expect_result(*a2, 0, 5);
  expect_result(*b, 0, 5);
}

TEST(rank_order_decides_the_bits) {
  // (1e8 + 1) - 1e8 is 0 in float32 in rank order 0, 1, 2 and 1 in another.
  for (const auto& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}) {
    Server server(3);
    std::vector<std::unique_ptr<RawPeer>> peers;
    for (uint16_t i = 0; i < 3; ++i) {
      peers.push_back(server.connect(i));
    }
    server.declare(1, 4);
    const float values[] = {1e8f, 1.0f, -1e8f};
    for (const int i : order) {
      peers[i]->push(1, 0, {values[i]}, kFlagWantCredit);
      if (i != order.back())
        expect_consumed(*peers[i], sizeof(float));  // so that the order of arrival is certain
    }
    for (auto& peer : peers) expect_result(*peer, 0, 0.0f);
  }
}

TEST(what_does_not_fit_the_budget_is_asked_for_again) {
  // Rank 0 is slow, ranks 1 and 2 push much more than a shard keeps; the sums are right all the same.
  constexpr uint32_t kTensors = 128;
  constexpr uint64_t kBytes = tuning::kPieceBytes;
  Server server(3);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (uint16_t i = 0; i < 3; ++i) peers.push_back(server.connect(i));
  const std::vector<float> ones(kBytes / 4, 1.0f), fours(kBytes / 4, 4.0f), many(kBytes / 4, 16.0f);
  for (uint32_t t = 0; t < kTensors; ++t) {
    server.declare(t, kBytes);
    for (uint16_t rank : {1, 2}) {
      peers[rank]->push(t, 0, rank == 1 ? fours : many, t + 1 == kTensors ? kFlagWantCredit : 0);
    }
  }
  for (uint16_t rank : {1, 2}) expect_consumed(*peers[rank], kTensors * kBytes);
  uint64_t resends = 0;
  for (uint32_t t = 0; t < kTensors; ++t) {
    peers[0]->push(t, 0, ones);
    bool answered[3] = {false, false, false};
    while (!(answered[0] && answered[1] && answered[2])) {
      for (uint16_t rank : {0, 1, 2}) {
        if (answered[rank]) continue;
        const auto frame = peers[rank]->receive(rank == 0 ? 1 : 20);
        if (!frame) continue;
        if (frame->header.type == FrameType::resend) {
          ++resends;
          peers[rank]->push(tensor_of(frame->header.key), 0, rank == 1 ? fours : many);
        } else if (frame->header.type == FrameType::result) {
          CHECK_EQ(frame->floats()[0], 21.0f);
          CHECK_EQ(tensor_of(frame->header.key), t);
          answered[rank] = true;
        }
      }
    }
  }
  const auto counters = server.aggregator->counters();
  CHECK(resends > 0);
  CHECK_EQ(counters.at("dropped"), resends);
  // One contribution per open key, the results, the budget, and what is on its way.
  CHECK(counters.at("buffer_bytes") < 2 * kTensors * kBytes + 2 * tuning::kHeldBytes);
}

TEST(who_is_missing_on_another_machine_is_asked_once_and_from_the_second_round) {
  Server server(3);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (uint16_t i = 0; i < 3; ++i) peers.push_back(server.connect(i, Wire::far));
  server.declare(1, 4);
  peers[0]->push(1, 0, {1});
  peers[1]->push(1, 0, {2});
  CHECK(peers[2]->silent());  // nobody knows yet which rank of a machine pushes this key
  peers[2]->push(1, 0, {4});
  for (auto& peer : peers) expect_result(*peer, 0, 7);
  peers[0]->push(1, 1, {1});
  for (uint16_t rank : {1, 2}) {
    const auto frame = peers[rank]->receive();
    CHECK(frame && frame->header.type == FrameType::want);
    if (!frame) return;
    CHECK_EQ(frame->header.key, make_key(1, 0));
    CHECK_EQ(frame->header.round, 1u);
  }
  for (auto& peer : peers) CHECK(peer->silent());
  peers[1]->push(1, 1, {2});
  CHECK(peers[2]->silent());  // has been asked
  peers[2]->push(1, 1, {4});
  for (auto& peer : peers) expect_result(*peer, 1, 7);
  for (auto& peer : peers) CHECK(peer->silent());
}

TEST(nobody_is_asked_on_the_same_machine) {
  Server server(2);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (uint16_t i = 0; i < 2; ++i) peers.push_back(server.connect(i, Wire::tcp));
  server.declare(1, 4);
  for (uint32_t round = 0; round < 2; ++round) {
    peers[0]->push(1, round, {1});
    CHECK(peers[1]->silent());
    peers[1]->push(1, round, {2});
    for (auto& peer : peers) expect_result(*peer, round, 3);
  }
}

TEST(who_is_missing_is_asked_when_another_machine_waits_though_one_here_was_first) {
  Server server(3);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (uint16_t i = 0; i < 3; ++i) peers.push_back(server.connect(i, i == 0 ? Wire::tcp : Wire::far));
  server.declare(1, 4);
  for (uint32_t round = 0; round < 2; ++round) {
    peers[0]->push(1, round, {1});
    CHECK(peers[2]->silent());  // nobody's link waits for it
    peers[1]->push(1, round, {2});
    if (round > 0) {
      const auto frame = peers[2]->receive();
      CHECK(frame && frame->header.type == FrameType::want && frame->header.round == round);
    }
    for (auto& peer : peers) CHECK(peer->silent());
    peers[2]->push(1, round, {4});
    for (auto& peer : peers) expect_result(*peer, round, 7);
  }
}

TEST(different_operations_on_one_tensor_are_an_error_for_all) {
  Server server(2);
  auto a = server.connect(0), b = server.connect(1);
  server.declare(1, 8);
  a->push(1, 0, {1, 1}, kFlagAverage | kFlagWantCredit);
  expect_consumed(*a, 8);  // so that it is b who disagrees
  b->push(1, 0, {4, 4});
  for (auto* peer : {a.get(), b.get()}) {
    const auto frame = peer->receive();
    CHECK(frame && frame->header.type == FrameType::error);
    if (!frame) continue;
    CHECK_EQ(frame->header.detail & 0xFF, static_cast<uint32_t>(FailureKind::conflict));
    const std::string text(reinterpret_cast<const char*>(frame->payload.data()), frame->payload.size());
    CHECK(contains(text, "worker 1") && contains(text, "average") && contains(text, "sum"));
  }
  a->push(1, 1, {1, 1});  // the tensor itself is fine
  b->push(1, 1, {4, 4});
  expect_result(*a, 1, 5);
  expect_result(*b, 1, 5);
}

TEST(a_departed_worker_ends_what_needs_it) {
  Server server(2);
  auto a = server.connect(0), b = server.connect(1);
  server.declare(1, 8);
  a->push(1, 0, {1, 1});
  CHECK(a->silent());
  server.aggregator->depart(1);
  for (const uint32_t round : {0u, 1u, 2u}) {
    const auto frame = a->receive();
    CHECK(frame && frame->header.type == FrameType::error && frame->header.round == round);
    if (frame)
      CHECK_EQ(frame->header.detail, static_cast<uint32_t>(FailureKind::lost) | 1u << kErrorRankShift);
    a->push(1, round + 1, {1, 1});
  }
}

TEST(a_departed_worker_also_ends_what_was_not_kept) {
  constexpr uint32_t kTensors = 64;  // more than a shard keeps
  constexpr uint64_t kBytes = tuning::kPieceBytes;
  Server server(3);
  auto b = server.connect(1), c = server.connect(2);
  const std::vector<float> ones(kBytes / 4, 1.0f);
  for (uint32_t t = 0; t < kTensors; ++t) server.declare(t, kBytes);
  for (RawPeer* peer : {b.get(), c.get()}) {
    for (uint32_t t = 0; t < kTensors; ++t) {
      peer->push(t, 0, ones, t + 1 == kTensors ? kFlagWantCredit : 0);
    }
    expect_consumed(*peer, kTensors * kBytes);
  }
  CHECK(server.aggregator->counters().at("dropped") > 0);
  server.aggregator->depart(0);
  for (RawPeer* peer : {b.get(), c.get()}) {
    for (uint32_t t = 0; t < kTensors; ++t) {
      const auto frame = peer->receive();
      CHECK(frame && frame->header.type == FrameType::error);
      if (!frame) break;
    }
  }
}

TEST(broken_peers_lose_their_connection_and_nobody_else_does) {
  struct Case {
    const char* reason;
    std::function<void(RawPeer&)> act;
  };
  const std::vector<Case> cases = {
      {"not our protocol", [](RawPeer& p) { p.send_bytes(std::string(200, 'x').data(), 200); }},
      {"has not placed on this server", [](RawPeer& p) { p.push(9, 0, {1, 1}); }},
      {"while round 0 is open", [](RawPeer& p) { p.push(1, 5, {1, 1}); }},
      {"expected 8", [](RawPeer& p) { p.push(1, 0, {1, 1, 1}); }},
      {"not a frame that a worker sends",
       [](RawPeer& p) {
         Header h;
         h.type = FrameType::result;
         p.send(h);
       }},
      {"unknown frame type 16",  // workers of earlier versions declared tensors themselves
       [](RawPeer& p) {
         Header h;
         h.type = static_cast<FrameType>(16);
         p.send(h, "abc", 3);
       }},
      {"has its place elsewhere",
       [](RawPeer& p) {
         Header h;
         h.type = FrameType::push;
         h.key = make_key(1, 7);
         p.send(h, "12345678", 8);
       }},
  };
  Server server(2);
  auto good = server.connect(0);
  server.declare(1, 8);
  for (const Case& each : cases) {
    auto bad = server.connect(1);
    each.act(*bad);
    CHECK(!bad->receive());
    CHECK(bad->ended());
    const Event event = server.event();
    CHECK_EQ(event.kind, FailureKind::protocol);
    CHECK(contains(event.text, each.reason));
    if (!contains(event.text, each.reason)) CHECK_EQ(event.text, std::string(each.reason));
  }
  auto late = server.connect(1);
  good->push(1, 0, {1, 1});
  late->push(1, 0, {4, 4});
  expect_result(*good, 0, 5);
  expect_result(*late, 0, 5);
}

TEST(asynchronous_values_are_counted_once) {
  Server server(2, true);
  auto a = server.connect(0);
  server.declare(1, 8);
  a->push(1, 0, {1, 1});
  expect_result(*a, 0, 1);
  a->push(1, 1, {2, 2});
  expect_result(*a, 1, 3);
  a->push(1, 1, {2, 2});
  expect_result(*a, 1, 3);
}
