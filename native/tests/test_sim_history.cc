// The checker of histories finds what it is there for.
#include "sim/history.h"

#include "base/crc32c.h"
#include "sim/model.h"
#include "tests/check.h"

using namespace byteps;
using namespace byteps::sim;

namespace {

Plan small_plan() {
  Plan plan;
  plan.workers = 3;
  plan.rounds = 2;
  plan.calls_differ = false;
  plan.tensors = {{DType::f32, 10'000}, {DType::i32, 7}};
  return plan;
}

Seen seen(const Plan& plan, uint32_t tensor, uint32_t round, const Elements& elements) {
  return {tensor, round, 1, counted(plan, tensor, round, elements), crc32c(elements.data(), elements.size())};
}

std::vector<History> right_histories(const Plan& plan) {
  std::vector<History> all(plan.workers);
  for (History& history : all) {
    for (uint32_t round = 0; round < plan.rounds; ++round) {
      for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
        history.push_back(seen(plan, t, round, result(plan, t, round)));
      }
    }
  }
  return all;
}

std::string first_complaint(const Plan& plan, const std::vector<History>& histories) {
  const auto found = complaints(plan, histories);
  return found.empty() ? "" : found[0];
}

// The contributions of these ranks, added.
Elements sum_of(const Plan& plan, uint32_t tensor, uint32_t round, const std::vector<uint16_t>& ranks) {
  Elements out(plan.tensors[tensor].elements * sizeof(float));
  auto* sums = reinterpret_cast<float*>(out.data());
  for (const uint16_t rank : ranks) {
    const Elements own = contribution(plan, tensor, round, rank);
    const auto* values = reinterpret_cast<const float*>(own.data());
    for (uint64_t i = 0; i < plan.tensors[tensor].elements; ++i) sums[i] += values[i];
  }
  return out;
}

}  // namespace

TEST(the_model_is_the_sum_of_its_contributions) {
  const Plan plan = small_plan();
  CHECK(sum_of(plan, 0, 1, {0, 1, 2}) == result(plan, 0, 1));
  CHECK_EQ(first_complaint(plan, right_histories(plan)), std::string());
}

TEST(who_was_counted_how_often_is_told) {
  const Plan plan = small_plan();
  auto histories = right_histories(plan);
  for (History& history : histories) history[0] = seen(plan, 0, 0, sum_of(plan, 0, 0, {0, 1, 1, 2}));
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 0 counts 121, not 111");
  for (History& history : histories) history[0] = seen(plan, 0, 0, sum_of(plan, 0, 0, {0, 2}));
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 0 counts 101, not 111");
}

TEST(a_result_of_another_round_or_in_parts_is_told) {
  const Plan plan = small_plan();
  auto histories = right_histories(plan);
  for (History& history : histories) history[0] = seen(plan, 0, 0, result(plan, 0, 1));
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 0 counts torn, not 111");
  Elements part = result(plan, 0, 0);
  part[part.size() - 2] = std::byte{0};  // the last element, behind the first period
  for (History& history : histories) history[0] = seen(plan, 0, 0, part);
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 0 counts torn, not 111");
  Elements moved = result(plan, 0, 0);
  std::rotate(moved.begin(), moved.begin() + 4096, moved.end());  // pieces in the wrong places
  CHECK_EQ(counted(plan, 0, 0, moved), kTorn);
}

TEST(workers_that_saw_different_things_are_told) {
  const Plan plan = small_plan();
  auto histories = right_histories(plan);
  histories[2][1].hash ^= 1;
  CHECK_EQ(first_complaint(plan, histories),
           "worker 2: tensor 1 round 0 is not what another worker has seen: 111 and 111");
  histories = right_histories(plan);
  histories[1][1].epoch = 2;
  CHECK_EQ(complaints(plan, histories).size(), 1u);
}

TEST(rounds_that_are_missing_repeated_or_out_of_order_are_told) {
  const Plan plan = small_plan();
  auto histories = right_histories(plan);
  histories[1].pop_back();
  CHECK_EQ(first_complaint(plan, histories), "worker 1: tensor 1 has 1 of 2 rounds");
  histories = right_histories(plan);
  histories[0].insert(histories[0].begin(), histories[0][0]);
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 0 comes after 1 others");
  histories = right_histories(plan);
  std::swap(histories[0][0], histories[0][2]);
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 1 comes after 0 others");
  histories = right_histories(plan);
  histories[0].push_back({5, 0});
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 5 round 0 was never asked for");
}

TEST(operations_that_failed_are_told) {
  const Plan plan = small_plan();
  auto histories = right_histories(plan);
  histories[0][0].failure = FailureKind::timeout;
  histories[0][0].why = "nobody came";
  CHECK_EQ(first_complaint(plan, histories), "worker 0: tensor 0 round 0 failed: nobody came");
}

TEST(a_digest_tells_histories_apart) {
  const Plan plan = small_plan();
  auto histories = right_histories(plan);
  const uint64_t before = digest(histories);
  CHECK_EQ(digest(histories), before);
  ++histories[2][3].when_ns;
  CHECK(digest(histories) != before);
}
