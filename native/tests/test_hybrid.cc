// Machines of several ranks below a server: sums inside, sums between, results to everybody.
#include <functional>
#include <thread>

#include "base/clock.h"
#include "reduce/half.h"
#include "tests/check.h"
#include "tests/job.h"

using namespace byteps;
using byteps::testing::Job;
using byteps::testing::JobOptions;

namespace {

constexpr int64_t kPatienceNs = 20 * kNanosecondsPerSecond;

void on_every_rank(uint16_t ranks, const std::function<void(uint16_t)>& work) {
  std::vector<std::thread> threads;
  for (uint16_t rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
  for (auto& thread : threads) thread.join();
}

JobOptions machines(std::vector<uint16_t> child_of) {
  const auto ranks = static_cast<uint16_t>(child_of.size());
  return {.workers = ranks, .child_of = std::move(child_of), .grouped = true};
}

std::byte* bytes(auto& data) { return reinterpret_cast<std::byte*>(data.data()); }

}  // namespace

TEST(sums_and_averages_are_over_ranks_whatever_the_machines) {
  for (const auto& child_of :
       std::vector<std::vector<uint16_t>>{{0, 0}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1}}) {
    Job job(machines(child_of));
    const auto ranks = static_cast<uint16_t>(child_of.size());
    on_every_rank(ranks, [&](uint16_t rank) {
      const auto tensor = job.declare(rank, 3, DType::f32, 4 * 500'001);
      for (const bool average : {false, true}) {
        std::vector<float> data(500'001, static_cast<float>(rank + 1));
        auto op = job.clients[rank]->push_pull(tensor, bytes(data), bytes(data), 0, average);
        CHECK(op->wait_for(kPatienceNs));
        CHECK_EQ(op->failure().message, std::string());
        const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
        const float expected = average ? sum / static_cast<float>(ranks) : sum;
        CHECK_EQ(data[0], expected);
        CHECK_EQ(data[500'000], expected);
      }
    });
  }
}

TEST(only_the_owners_of_pieces_push) {
  Job job(machines({0, 0, 1, 1}));
  constexpr uint64_t kBytes = 4'000'000;
  on_every_rank(4, [&](uint16_t rank) {
    const auto tensor = job.declare(rank, 0, DType::f32, kBytes);
    std::vector<float> data(kBytes / 4, 1.0f);
    auto op = job.clients[rank]->push_pull(tensor, bytes(data), bytes(data), 0, false);
    CHECK(op->wait_for(kPatienceNs));
    CHECK_EQ(data[7], 4.0f);
  });
  for (const int machine : {0, 2}) {
    uint64_t pushed = 0;
    for (const int rank : {machine, machine + 1}) {
      pushed += job.clients[static_cast<size_t>(rank)]->counters().at("pushed_bytes");
    }
    CHECK_EQ(pushed, kBytes);
  }
}

TEST(halves_are_rounded_once_by_the_server) {
  Job job(machines({0, 0, 1}));
  on_every_rank(3, [&](uint16_t rank) {
    const auto tensor = job.declare(rank, 0, DType::f16, 2 * 1000);
    // 2048 + 1 is 2048 in float16: two ones are only seen if nothing is rounded before the end.
    std::vector<uint16_t> data(1000, f32_to_f16(rank == 0 ? 2048.0f : 1.0f));
    auto op = job.clients[rank]->push_pull(tensor, bytes(data), bytes(data), 0, false);
    CHECK(op->wait_for(kPatienceNs));
    CHECK_EQ(f16_to_f32(data[999]), 2050.0f);
    // A sum beyond the range of float16 has an average within it.
    std::fill(data.begin(), data.end(), f32_to_f16(60'000.0f));
    op = job.clients[rank]->push_pull(tensor, bytes(data), bytes(data), 0, true);
    CHECK(op->wait_for(kPatienceNs));
    CHECK_EQ(f16_to_f32(data[0]), 60'000.0f);
  });
}

TEST(a_broadcast_comes_from_any_rank) {
  Job job(machines({0, 0, 1, 1}));
  on_every_rank(4, [&](uint16_t rank) {
    const auto tensor = job.declare(rank, 0, DType::i32, 4 * 300'000);
    for (uint32_t root = 0; root < 4; ++root) {
      std::vector<int32_t> data(300'000, static_cast<int32_t>(rank));
      auto op = job.clients[rank]->broadcast(tensor, bytes(data), root, 0);
      CHECK(op->wait_for(kPatienceNs));
      CHECK_EQ(data[0], static_cast<int32_t>(root));
      CHECK_EQ(data[299'999], static_cast<int32_t>(root));
    }
  });
}

TEST(a_disagreement_on_one_machine_is_heard_on_all_and_the_next_round_works) {
  Job job(machines({0, 0, 1, 1}));
  on_every_rank(4, [&](uint16_t rank) {
    const auto tensor = job.declare(rank, 0, DType::f32, 4'000);
    std::vector<float> data(1000, 1.0f);
    auto wrong = job.clients[rank]->push_pull(tensor, bytes(data), bytes(data), 0, rank == 1);
    CHECK(wrong->wait_for(kPatienceNs));
    CHECK_EQ(wrong->failure().kind, FailureKind::conflict);
    CHECK(wrong->failure().message.find("push_pull with average") != std::string::npos);
    std::fill(data.begin(), data.end(), 1.0f);
    auto right = job.clients[rank]->push_pull(tensor, bytes(data), bytes(data), 0, false);
    CHECK(right->wait_for(kPatienceNs));
    CHECK_EQ(right->failure().message, std::string());
    CHECK_EQ(data[999], 4.0f);
  });
}

TEST(a_lost_member_ends_what_is_under_way) {
  Job job(machines({0, 0, 1}));
  const auto t0 = job.declare(0, 0, DType::f32, 4'000'000), t1 = job.declare(1, 0, DType::f32, 4'000'000);
  std::vector<float> a(1'000'000), b(1'000'000);
  auto first = job.clients[0]->push_pull(t0, bytes(a), bytes(a), 0, false);
  auto second = job.clients[1]->push_pull(t1, bytes(b), bytes(b), 0, false);
  job.clients[0]->fail({FailureKind::lost, "worker 2 was lost", Role::worker, 2, "here"});
  job.clients[1]->fail({FailureKind::lost, "worker 2 was lost", Role::worker, 2, "here"});
  for (auto& op : {first, second}) {
    CHECK(op->wait_for(kPatienceNs));
    CHECK_EQ(op->failure().rank, 2);
  }
}
