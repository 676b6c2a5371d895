// Leave to take memory: who asks for more than there is fails by name; and what a server does when that
// happens.
#include "base/memory.h"

#include <poll.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>

#include "aggregator/aggregator.h"
#include "base/buffer.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/raw_peer.h"
#include "wire/limits.h"

using namespace byteps;
using byteps::testing::RawPeer;

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSpare = 16 * kMiB;  // what the gate leaves to others

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// While it lives, the gate of this process believes that so much is left.
struct Left {
  explicit Left(uint64_t bytes) {
    MemoryGate::shared().look_with([bytes] { return MemoryLeft{bytes + kSpare, "a test's memory"}; });
  }
  ~Left() { MemoryGate::shared().look_with(memory_left); }
};

struct Server {
  explicit Server(uint16_t workers, bool asynchronous = false) {
    AggregatorSettings settings;
    settings.job = 1;
    settings.epoch = byteps::testing::epoch_of(1, workers);
    settings.asynchronous = asynchronous;
    aggregator = std::make_unique<Aggregator>(settings);
    for (uint16_t rank = 0; rank < workers; ++rank) {
      peers.push_back(std::make_unique<RawPeer>(1, 1, rank));
      aggregator->attach(0, rank, peers.back()->other_end(), false);
    }
  }
  RawPeer& operator[](size_t rank) { return *peers[rank]; }
  std::unique_ptr<Aggregator> aggregator;
  std::vector<std::unique_ptr<RawPeer>> peers;
};

void expect_lack(RawPeer& peer, uint32_t round) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::error);
  if (!frame) return;
  CHECK_EQ(frame->header.detail, static_cast<uint32_t>(FailureKind::memory));
  CHECK_EQ(frame->header.round, round);
  const std::string text(reinterpret_cast<const char*>(frame->payload.data()), frame->payload.size());
  CHECK(contains(text, "t1 (key 1)") && contains(text, "no memory for") && contains(text, "a test's memory"));
  if (!contains(text, "a test's memory")) CHECK_EQ(text, std::string());
}

void expect_sum(RawPeer& peer, uint32_t round, float value) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::result && frame->header.round == round);
  if (frame && frame->payload.size() >= 4) CHECK_EQ(frame->floats()[0], value);
}

}  // namespace

TEST(the_system_is_looked_at_when_what_it_had_left_may_be_used_up) {
  int looks = 0;
  uint64_t left = 1024 * kMiB + kSpare;
  MemoryGate gate([&] {
    ++looks;
    return MemoryLeft{left, "a test's memory"};
  });
  gate.ask(kMiB);
  for (int i = 0; i < 60; ++i) gate.ask(kMiB);  // of the 64 MiB that one look grants
  CHECK_EQ(looks, 1);
  for (int i = 0; i < 10; ++i) gate.ask(kMiB);
  CHECK_EQ(looks, 2);
  left = kSpare + 100;
  CHECK_THROWS(gate.ask(100 * kMiB), OutOfMemory);
  gate.ask(100);
  CHECK_THROWS(gate.ask(200), std::bad_alloc);
}

TEST(who_asks_in_vain_hears_how_much_there_is) {
  MemoryGate gate([] { return MemoryLeft{kSpare + 1000, "the pocket of a test"}; });
  try {
    gate.ask(2000);
    CHECK(false);
  } catch (const OutOfMemory& lack) {
    CHECK_EQ(std::string(lack.what()),
             std::string("no memory for 2000 bytes: 1000 are left of the pocket of a test"));
  }
}

TEST(what_will_be_needed_is_compared_with_what_there_is) {
  MemoryGate gate([] { return MemoryLeft{kSpare + 1000, "a test's memory"}; });
  gate.expect(1000);
  CHECK_THROWS(gate.expect(1001), OutOfMemory);
}

TEST(this_process_has_memory_left) {
  const MemoryLeft left = memory_left();
  CHECK(left.bytes > 0);
  CHECK(!left.limit.empty());
}

TEST(a_pool_gives_what_it_has_though_there_is_no_more) {
  BufferPool pool;
  BufferRef first = pool.take(100'000);
  first.reset();
  const Left left(1000);
  first = pool.take(100'000);  // the same one again
  CHECK_THROWS(pool.take(100'000), OutOfMemory);
  CHECK_EQ(pool.allocated_bytes(), first.capacity());
}

TEST(a_tensor_that_there_is_no_room_for_is_not_declared) {
  Server server(2);
  const Left left(4 * kMiB);
  byteps::testing::declare(*server.aggregator, 1, 3 * kMiB);
  CHECK_THROWS(byteps::testing::declare(*server.aggregator, 2, 2 * kMiB), OutOfMemory);
  byteps::testing::declare(*server.aggregator, 3, kMiB);
}

TEST(a_round_that_there_is_no_memory_for_fails_for_all_and_the_next_one_works) {
  constexpr size_t kElements = 50'000;
  Server server(2);
  byteps::testing::declare(*server.aggregator, 1, kElements * 4);
  const std::vector<float> ones(kElements, 1), fours(kElements, 4);
  {
    const Left left(0);  // nor for the words that say so
    server[0].push(1, 0, ones);
    server[1].push(1, 0, fours);
    for (auto& peer : server.peers) expect_lack(*peer, 0);
  }
  server[0].push(1, 1, ones);
  server[1].push(1, 1, fours);
  for (auto& peer : server.peers) expect_sum(*peer, 1, 5);
}

TEST(a_round_without_memory_for_its_result_is_not_answered_with_the_one_before) {
  constexpr size_t kElements = 50'000;
  Server server(2);
  byteps::testing::declare(*server.aggregator, 1, kElements * 2, DType::f16);
  const std::vector<float> ones(kElements, 1);  // sums of machines: the result needs memory of its own
  Header header;
  header.type = FrameType::push;
  header.key = make_key(1, 0);
  header.dtype = static_cast<uint8_t>(DType::f32);
  const auto push = [&](size_t rank, uint32_t round) {
    header.round = round;
    server[rank].send(header, ones.data(), kElements * sizeof(float));
  };
  for (const size_t rank : {0, 1}) push(rank, 0);
  for (auto& peer : server.peers) {
    const auto frame = peer->receive();
    CHECK(frame && frame->header.type == FrameType::result);
  }
  {
    const Left left(0);  // what contributions need, the pool has
    for (const size_t rank : {0, 1}) push(rank, 1);
    for (auto& peer : server.peers) expect_lack(*peer, 1);
  }
  push(0, 1);  // as after a broken connection: it is told again what became of that round
  expect_lack(server[0], 1);
}

TEST(a_short_payload_of_a_large_piece_takes_no_memory_that_is_not_there) {
  Server server(1);
  byteps::testing::declare(*server.aggregator, 1, 4 * kMiB, DType::f32, compress::DeclaredCodec{}, 4 * kMiB);
  const Left left(kMiB);
  std::vector<std::byte> payload(kMiB / 8 + 4);  // one bit for each element, and a scale
  server[0].push_compressed(1, 0, 1, payload);
  expect_lack(server[0], 0);
}

TEST(an_asynchronous_operation_fails_alone) {
  constexpr size_t kElements = 50'000;
  Server server(2, true);
  byteps::testing::declare(*server.aggregator, 1, kElements * 4);
  const std::vector<float> ones(kElements, 1);
  {
    const Left left(1000);
    server[0].push(1, 0, ones);
    expect_lack(server[0], 0);
  }
  server[1].push(1, 0, ones);
  expect_sum(server[1], 0, 1);  // what failed was not added
  server[0].push(1, 1, ones);
  expect_sum(server[0], 1, 2);
}

TEST(who_does_not_read_its_answers_is_cut_off) {
  constexpr size_t kElements = 16 * 1024;
  Server server(2, true);
  byteps::testing::declare(*server.aggregator, 1, kElements * 4);
  const std::vector<float> ones(kElements, 1);
  for (uint32_t round = 0; round < 2000; ++round) server[0].push(1, round, ones);  // far more than may wait
  std::string why;
  EventQueue& events = server.aggregator->events();
  for (pollfd told{events.fileno(), POLLIN, 0}; why.empty() && ::poll(&told, 1, 10'000) > 0;) {
    for (const Event& event : events.drain()) {
      if (event.kind == FailureKind::protocol) why = event.text;
    }
  }
  CHECK(contains(why, "does not read its answers"));
  CHECK(server.aggregator->counters().at("buffer_bytes") < 4 * limits::kAnswerBytes);
  server[1].push(1, 0, ones);
  CHECK(server[1].receive().has_value());
}
