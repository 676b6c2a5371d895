// Children of a server that are machines of several ranks: who is counted, who is answered, what is divided.
#include <array>
#include <cstring>

#include <poll.h>

#include "reduce/half.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/raw_peer.h"

using namespace byteps;
using namespace byteps::testing;

namespace {

constexpr int64_t kPatienceNs = 30'000'000'000;

// A rank, and what it pushes for its machine.
template <class T>
using Contribution = std::pair<uint16_t, std::vector<T>>;

// One round of one tensor: what each of the pushing ranks gets back.
template <class T>
std::vector<std::vector<T>> round_of(Job& job, DType dtype, uint32_t id,
                                     std::vector<Contribution<T>> contributions, bool average) {
  std::vector<std::shared_ptr<Operation>> ops;
  for (auto& [rank, values] : contributions) {
    auto tensor = job.declare(rank, id, dtype, values.size() * sizeof(T));
    auto* data = reinterpret_cast<std::byte*>(values.data());
    ops.push_back(job.clients[rank]->push_pull(tensor, data, data, 0, average));
  }
  std::vector<std::vector<T>> results;
  for (size_t i = 0; i < ops.size(); ++i) {
    CHECK(ops[i]->wait_for(kPatienceNs));
    CHECK_EQ(ops[i]->failure().message, std::string());
    results.push_back(contributions[i].second);
  }
  return results;
}

template <class T>
void expect_all(const std::vector<std::vector<T>>& results, T expected) {
  for (const auto& result : results) {
    for (const T value : result) {
      if (value == expected) continue;
      CHECK_EQ(value, expected);
      return;
    }
  }
}

// By address and over the socket; pieces of both ways in one tensor.
constexpr size_t kElements = 300'000;

template <class T>
std::vector<T> all(T value) {
  return std::vector<T>(kElements, value);
}

}  // namespace

TEST(machines_contribute_once_through_any_rank_and_averages_count_ranks) {
  for (const bool by_address : {false, true}) {
    Job job({.workers = 4, .child_of = {0, 0, 1, 1}, .by_address = by_address});
    // Worker r has 4^r; each machine has summed its two. The tensor's id chooses the ranks.
    expect_all(round_of<float>(job, DType::f32, 1, {{0, all(5.0f)}, {3, all(80.0f)}}, false), 85.0f);
    expect_all(round_of<float>(job, DType::f32, 2, {{1, all(5.0f)}, {2, all(80.0f)}}, true), 21.25f);
    expect_all(round_of<int32_t>(job, DType::i32, 3, {{2, all(80)}, {1, all(5)}}, true), 21);
    const auto counters = job.server->counters();
    CHECK_EQ(counters.at("read_bytes") > 0, by_address);
  }
}

TEST(half_averages_are_rounded_once_whatever_the_machines) {
  const uint16_t one = f32_to_f16(1), two_thousand = f32_to_f16(2048), large = f32_to_f16(60000);
  {
    // 2049 is no float16: rounded before the division it would be 2048, and 682.5 instead of 683.
    Job job({.workers = 3, .child_of = {0, 0, 1}});
    expect_all(round_of<uint16_t>(job, DType::f16, 1, {{1, all(two_thousand)}, {2, all(one)}}, true),
               f32_to_f16(683));
    // The sum overflows, the average does not.
    expect_all(round_of<uint16_t>(job, DType::f16, 2, {{0, all(large)}, {2, all(large)}}, true),
               f32_to_f16(40000));
  }
  {
    Job job({.workers = 4, .child_of = {0, 0, 1, 2}});
    expect_all(
        round_of<uint16_t>(job, DType::f16, 1, {{1, all(two_thousand)}, {2, all(one)}, {3, all(one)}}, true),
        f32_to_f16(512.5f));
  }
  {
    Job job({.workers = 3, .child_of = {0, 0, 0}});  // one machine that insists on a server
    expect_all(round_of<uint16_t>(job, DType::f16, 1, {{2, all(f32_to_f16(9))}}, true), f32_to_f16(3));
    expect_all(round_of<float>(job, DType::f32, 2, {{0, all(9.0f)}}, false), 9.0f);
  }
}

TEST(a_broadcast_comes_from_the_machine_of_its_root) {
  for (const bool by_address : {false, true}) {
    Job job({.workers = 4, .child_of = {0, 0, 1, 1}, .by_address = by_address});
    for (const uint32_t root : {0u, 1u, 2u, 3u}) {
      // Rank 1 and rank 2 own the tensor on their machines.
      std::array<std::vector<float>, 2> data = {all(1.0f), all(2.0f)};
      std::vector<std::shared_ptr<Operation>> ops;
      for (const uint16_t machine : {0, 1}) {
        const uint16_t owner = machine + 1;
        auto tensor = job.declare(owner, 10 + root, DType::f32, kElements * 4);
        ops.push_back(job.clients[owner]->broadcast(
            tensor, reinterpret_cast<std::byte*>(data[machine].data()), root, 0));
      }
      for (auto& op : ops) {
        CHECK(op->wait_for(kPatienceNs));
        CHECK_EQ(op->failure().message, std::string());
      }
      expect_all<float>({data[0], data[1]}, root < 2 ? 1.0f : 2.0f);
    }
  }
}

TEST(two_ranks_of_a_machine_cannot_push_the_same_piece) {
  AggregatorSettings settings;
  settings.job = Job::kJob;
  settings.epoch = byteps::testing::epoch_of(Job::kEpoch, 4, {0, 0, 1, 1});
  Aggregator server(settings);
  byteps::testing::declare(server, 1, 8);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (uint16_t rank = 0; rank < 4; ++rank) {
    peers.push_back(std::make_unique<RawPeer>(Job::kJob, Job::kEpoch, rank));
    server.attach(0, rank, peers.back()->other_end(), false);
  }
  peers[0]->push(1, 0, {1, 1}, kFlagWantCredit);
  CHECK(peers[0]->receive()->header.type == FrameType::credit);
  peers[1]->push(1, 0, {1, 1});
  CHECK(!peers[1]->receive() && peers[1]->ended());
  // The connection closes a moment before the event is posted.
  pollfd posted{server.events().fileno(), POLLIN, 0};
  CHECK_EQ(::poll(&posted, 1, 10'000), 1);
  bool told = false;
  for (const Event& event : server.events().drain()) {
    if (event.kind != FailureKind::protocol) continue;
    told = true;
    CHECK_EQ(event.number, 1);
    CHECK(event.text.find("worker 0 has pushed it for the same machine") != std::string::npos);
  }
  CHECK(told);
  peers[3]->push(1, 0, {4, 4});
  for (const uint16_t rank : {0, 3}) {
    const auto frame = peers[rank]->receive();
    CHECK(frame && frame->header.type == FrameType::result && frame->floats()[0] == 5);
  }
  CHECK(peers[2]->silent());

  // The departed rank is named, not its machine; its machine is what the round waits for.
  peers[3]->push(1, 1, {4, 4}, kFlagWantCredit);
  CHECK(peers[3]->receive()->header.type == FrameType::credit);
  server.depart(1);
  const auto frame = peers[3]->receive();
  CHECK(frame && frame->header.type == FrameType::error);
  if (!frame) return;
  CHECK_EQ(frame->header.detail, static_cast<uint32_t>(FailureKind::lost) | 1u << kErrorRankShift);
  const std::string text(reinterpret_cast<const char*>(frame->payload.data()), frame->payload.size());
  CHECK_EQ(text, std::string("worker 1 has left the job"));
}
