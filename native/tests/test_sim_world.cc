// Whole jobs in a made time: the real objects of workers and servers sum exactly, a seed repeats everything,
// and what is planted is found.
#include "sim/world.h"

#include "tests/check.h"

using namespace byteps;
using sim::Fault;
using sim::Outcome;
using sim::Plan;

namespace {

void check_right(const Plan& plan) {
  const Outcome outcome = sim::World(plan).run();
  CHECK_EQ(outcome.complaints.empty() ? "" : text_of(plan) + ": " + outcome.complaints[0], std::string());
  size_t seen = 0;
  for (const auto& history : outcome.histories) seen += history.size();
  CHECK_EQ(seen, size_t{plan.workers} * plan.tensors.size() * plan.rounds);
}

compress::DeclaredCodec codec(compress::CodecKind kind) {
  compress::DeclaredCodec made;
  made.spec.kind = kind;
  made.spec.k = 1 << 24;
  made.feedback = compress::Feedback::corrected;
  made.spec.feedback = true;
  return made;
}

// Every type and codec that is exact for four ranks, in several partitions and pieces.
Plan mixed_plan() {
  Plan plan;
  plan.workers = 4;
  plan.shards = 2;
  plan.io_threads = 2;
  plan.codec_threads = 2;
  plan.piece_bytes = 4096;
  plan.rounds = 8;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64}) {
    plan.tensors.push_back({dtype, 10'001, 16'384});
  }
  using compress::CodecKind;
  for (const CodecKind kind : {CodecKind::topk, CodecKind::randomk, CodecKind::fp16}) {
    plan.tensors.push_back({DType::f32, 10'001, 16'384, 1, codec(kind)});
    plan.tensors.push_back({DType::f16, 10'001, 16'384, 2, codec(kind), false});
  }
  plan.wire = {.jitter_ns = 100'000, .bytes_per_s = 1e9, .segment_bytes = 9000, .ragged = true};
  return plan;
}

}  // namespace

TEST(one_server_sums) { check_right(mixed_plan()); }

TEST(two_servers_of_several_shards_sum) {
  Plan plan = mixed_plan();
  plan.servers = 2;
  plan.shards = 3;
  check_right(plan);
}

TEST(members_of_one_machine_sum) {
  Plan plan = mixed_plan();
  plan.on_one_machine = plan.wire.same_machine = true;
  plan.piece_bytes = 384 * 1024;
  check_right(plan);
  plan.by_address = true;
  check_right(plan);
}

TEST(a_thousand_rounds_of_four_workers) {
  Plan plan;
  plan.workers = 4;
  plan.servers = 2;
  plan.shards = 2;
  plan.rounds = 1000;
  plan.tensors = {{DType::f32, 1000}, {DType::f16, 1000, 1 << 20, 1}, {DType::f32, 20'000, 65'536, 2}};
  check_right(plan);
}

TEST(jobs_of_many_seeds_are_right) {
  for (uint64_t seed = 1; seed <= 60; ++seed) check_right(sim::drawn_plan(seed));
}

TEST(the_same_seed_gives_the_same_history) {
  int differ = 0;
  uint64_t before = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Plan plan = sim::drawn_plan(seed);
    const uint64_t once = sim::World(plan).run().digest;
    const std::vector<std::vector<std::byte>> elsewhere(seed % 7, std::vector<std::byte>(1000 * seed));
    CHECK_EQ(sim::World(plan).run().digest, once);
    differ += once != before;
    before = once;
  }
  CHECK_EQ(differ, 20);
}

TEST(another_seed_of_the_same_job_meets_in_another_order) {
  Plan plan = mixed_plan();
  plan.calls_differ = false;  // they are drawn from the seed, too
  const uint64_t once = sim::World(plan).run().digest;
  plan.seed = 2;
  CHECK(sim::World(plan).run().digest != once);
}

TEST(members_that_stand_still_and_links_that_are_silent_for_a_while_change_nothing) {
  Plan plan = mixed_plan();
  plan.servers = 2;
  constexpr int64_t kMillisecond = 1'000'000;
  plan.faults = {{Fault::What::frozen_worker, 2 * kMillisecond, 300 * kMillisecond, 1},
                 {Fault::What::frozen_server, 3 * kMillisecond, 200 * kMillisecond, 1},
                 {Fault::What::silent_link, 4 * kMillisecond, 400 * kMillisecond, 2, 0}};
  check_right(plan);
}

// Deadlines are those of the made time: nobody waits for them here.
TEST(a_rank_that_never_comes_is_named_after_the_time_that_was_set) {
  Plan plan;
  plan.tensors = {{DType::f32, 1000}};
  plan.rounds = 1;
  plan.faults = {{Fault::What::frozen_worker, 0, 1000 * kNanosecondsPerSecond, 1}};
  const Outcome outcome = sim::World(plan).run();
  bool named = false;
  for (const auto& text : outcome.complaints) named |= text.find("waits for worker 1") != std::string::npos;
  CHECK(named);
  CHECK_EQ(outcome.histories[0].size(), 1u);
  CHECK(outcome.histories[0][0].failure == FailureKind::timeout);
  const int64_t waited_s = outcome.histories[0][0].when_ns / kNanosecondsPerSecond;
  CHECK(waited_s >= 600 && waited_s <= 602);
}

// What a shard owes to a worker that cannot read now is not due again and again.
TEST(no_loop_spins_while_a_wire_is_full) { check_right(sim::drawn_plan(74)); }

// The first rank comes last, and a shard does not keep 24 MB of the others for so long: it asks for them
// again.
TEST(what_a_shard_could_not_keep_is_sent_again) {
  Plan plan;
  plan.workers = 4;
  plan.rounds = 1;
  plan.calls_differ = false;
  plan.credit_bytes = uint64_t{64} << 20;
  plan.piece_bytes = tuning::kPieceBytes;
  plan.on_one_machine = plan.wire.same_machine = true;
  plan.tensors = {{DType::f32, 2'000'000, 4'096'000}};
  plan.faults = {{Fault::What::frozen_worker, 0, kNanosecondsPerSecond, 0}};
  check_right(plan);
}
