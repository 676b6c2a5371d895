// Members that break rules which only show when frames come in an unusual order: the server names it and
// lives, and what is right for the others stays right.
#include <poll.h>

#include <cstring>
#include <memory>

#include "aggregator/aggregator.h"
#include "reduce/half.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/raw_peer.h"

using namespace byteps;
using byteps::testing::RawPeer;

namespace {

constexpr uint64_t kJob = 77;
constexpr uint32_t kEpoch = 4;

struct Server {
  explicit Server(uint16_t workers, bool asynchronous = false) {
    AggregatorSettings settings;
    settings.job = kJob;
    settings.epoch = byteps::testing::epoch_of(kEpoch, workers);
    settings.asynchronous = asynchronous;
    aggregator = std::make_unique<Aggregator>(settings);
    for (uint16_t rank = 0; rank < workers; ++rank) peers.push_back(connect(rank));
  }
  std::unique_ptr<RawPeer> connect(uint16_t rank, pid_t pid = 0) {
    auto peer = std::make_unique<RawPeer>(kJob, kEpoch, rank);
    aggregator->attach(0, rank, peer->other_end(), false, pid);
    return peer;
  }
  void declare(uint32_t tensor, uint64_t bytes, DType dtype = DType::f32) {
    byteps::testing::declare(*aggregator, tensor, bytes, dtype);
  }
  RawPeer& operator[](size_t rank) { return *peers[rank]; }
  // Why a connection was ended; the first time.
  std::string violation() {
    for (int i = 0; i < 100; ++i) {
      pollfd waiting{aggregator->events().fileno(), POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) <= 0) break;
      for (Event& event : aggregator->events().drain()) {
        if (event.kind == FailureKind::protocol) return event.text;
      }
    }
    return "none";
  }

  std::unique_ptr<Aggregator> aggregator;
  std::vector<std::unique_ptr<RawPeer>> peers;
};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

Header push_of(uint32_t tensor, uint32_t round, uint16_t flags = 0, uint32_t root = 0) {
  Header header;
  header.type = FrameType::push;
  header.key = make_key(tensor, 0);
  header.round = round;
  header.flags = flags;
  header.detail = root;
  return header;
}

void refuse(RawPeer& peer, uint32_t tensor, uint32_t round, std::string_view why) {
  Header header = push_of(tensor, round);
  header.type = FrameType::refuse;
  peer.send(header, why.data(), why.size());
}

// The server has dealt with all that this peer has sent: it answers frames of one connection in their order.
void expect_error(RawPeer& peer, uint32_t round, const char* part) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::error);
  if (!frame) return;
  const std::string text(reinterpret_cast<const char*>(frame->payload.data()), frame->payload.size());
  CHECK_EQ(frame->header.round, round);
  CHECK(contains(text, part));
  if (!contains(text, part)) CHECK_EQ(text, std::string(part));
}

void expect_result(RawPeer& peer, uint32_t round, const std::vector<float>& values) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::result);
  if (!frame || frame->payload.size() != values.size() * sizeof(float)) return CHECK(false);
  CHECK_EQ(frame->header.round, round);
  for (size_t i = 0; i < values.size(); ++i) CHECK_EQ(frame->floats()[i], values[i]);
}

}  // namespace

TEST(a_refusal_without_a_text_is_one_whoever_comes_first) {
  for (const size_t first : {0u, 1u}) {
    Server server(2);
    server.declare(1, 8);
    for (const size_t rank : {first, 1 - first}) {
      if (rank == 0) {
        refuse(server[0], 1, 0, "");
      } else {
        server[1].push(1, 0, {4, 4}, kFlagWantCredit);
      }
      if (rank == first && rank == 1) CHECK(server[1].receive().has_value());  // credit: it has come
      if (rank == first && rank == 0) CHECK(server[0].silent());
    }
    for (auto& peer : server.peers) expect_error(*peer, 0, "worker 0 has nothing to contribute");
    server[0].push(1, 1, {1, 1});  // the tensor itself is fine
    server[1].push(1, 1, {4, 4});
    for (auto& peer : server.peers) expect_result(*peer, 1, {5, 5});
  }
}

TEST(what_a_member_says_reaches_the_others_without_escape_codes) {
  Server server(2);
  server.declare(1, 8);
  refuse(server[0], 1, 0, "\x1B[31mred \xFF");
  server[1].push(1, 0, {4, 4});
  for (auto& peer : server.peers) expect_error(*peer, 0, "?[31mred ?");
}

TEST(a_value_that_nobody_has_set_is_not_answered) {
  Server server(2, true);
  server.declare(1, 8);
  server[1].send(push_of(1, 0, kFlagBroadcast, 0));
  server[1].push(1, 0, {4, 4});
  CHECK(!server[1].receive() && server[1].ended());
  CHECK(contains(server.violation(), "has come before as an empty part of a broadcast"));
  server.peers[1] = server.connect(1);
  for (int i = 0; i < 3; ++i)
    server[1].send(push_of(1, 0, kFlagBroadcast, 0));  // its connection broke, it says
  CHECK(server[1].silent());
  server[0].push(1, 0, {7, 7}, kFlagBroadcast);
  expect_result(server[0], 0, {7, 7});
  expect_result(server[1], 0, {7, 7});
  CHECK(server[1].silent());  // once, however often it asked
}

TEST(in_asynchronous_mode_half_types_come_as_they_are) {
  Server server(1, true);
  server.declare(1, 4, DType::f16);
  Header header = push_of(1, 0);
  header.dtype = static_cast<uint8_t>(DType::f32);
  const std::vector<float> sums = {1, 2};
  server[0].send(header, sums.data(), 8);  // would be stored as if it were float16
  CHECK(!server[0].receive() && server[0].ended());
  CHECK(contains(server.violation(), "is float16, not float32"));
}

TEST(a_broadcast_is_not_divided) {
  Server server(1);
  server.declare(1, 8);
  const std::vector<float> values = {16, 16};
  server[0].send(push_of(1, 0, kFlagAverage | kFlagBroadcast), values.data(), 8);
  CHECK(!server[0].receive() && server[0].ended());
  CHECK(contains(server.violation(), "a broadcast that is to be divided"));
}

TEST(what_the_scheduler_has_not_placed_here_is_nobodys_business) {
  Server server(1);
  server.declare(1, 8);
  const std::vector<float> values = {1, 1};
  server[0].send(push_of(2, 0), values.data(), 8);
  CHECK(!server[0].receive() && server[0].ended());
  CHECK(contains(server.violation(), "tensor 2 from worker 0, which the scheduler has not placed"));
  auto again = server.connect(0);
  Header beyond = push_of(1, 0);
  beyond.key = make_key(1, 1);
  again->send(beyond, values.data(), 8);
  CHECK(!again->receive() && again->ended());
  CHECK(contains(server.violation(), "piece 1 of t1 from worker 0, which has its place elsewhere"));
}

TEST(a_compressed_payload_by_address_needs_an_address) {
  Server server(1);
  auto peer = server.connect(0, ::getpid());
  byteps::testing::declare(*server.aggregator, 1, 8, DType::f32, compress::DeclaredCodec{});
  Header header = push_of(1, 0, kFlagByAddress);
  header.codec = 1;
  header.detail = 5;
  peer->send(header);  // the offer of an earlier frame would be read
  CHECK(!peer->receive() && peer->ended());
  CHECK(contains(server.violation(), "0 bytes, expected 24"));
}

TEST(a_broadcast_after_a_round_that_failed_has_the_roots_bytes) {
  Server server(3);
  server.declare(1, 4, DType::f16);
  const std::vector<float> wide = {1, 2};
  Header header = push_of(1, 0, kFlagWantCredit);
  header.dtype = static_cast<uint8_t>(DType::f32);
  for (size_t rank : {0u, 1u}) {  // the sum is float32 now
    server[rank].send(header, wide.data(), 8);
    CHECK(server[rank].receive().has_value());
  }
  refuse(server[2], 1, 0, "not me");
  for (auto& peer : server.peers) expect_error(*peer, 0, "not me");
  const uint16_t halves[] = {f32_to_f16(3), f32_to_f16(4)};
  Header broadcast = push_of(1, 1, kFlagBroadcast, 0);
  broadcast.dtype = static_cast<uint8_t>(DType::f16);
  server[0].send(broadcast, halves, 4);
  for (size_t rank : {1u, 2u}) server[rank].send(broadcast);
  for (size_t rank : {1u, 2u}) {
    const auto frame = server[rank].receive();
    CHECK(frame && frame->payload.size() == 4);
    if (frame) CHECK(std::memcmp(frame->payload.data(), halves, 4) == 0);
  }
}

TEST(a_broadcast_that_waits_for_its_root_takes_no_room_from_others) {
  Server server(3);
  server.declare(1, 4096);
  server.declare(2, 8);
  server[1].send(push_of(1, 0, kFlagBroadcast, 0));
  for (const size_t rank : {2u, 1u}) {  // before their turn
    server[rank].push(2, 0, {4, 4}, kFlagWantCredit);
    CHECK(server[rank].receive().has_value());
  }
  server[0].push(2, 0, {1, 1});
  for (auto& peer : server.peers) expect_result(*peer, 0, {9, 9});
  CHECK_EQ(server.aggregator->counters().at("dropped"), 0u);
}
