// Connections break at random moments, and are made again: every result has the bits that it has without a
// loss, everybody is counted once, and nothing grows.
#include <cmath>

#include "tests/breaking_job.h"

using namespace byteps;
using byteps::testing::BreakingJob;
using byteps::testing::BreakingOptions;

namespace {

struct Kind {
  const char* name;
  DType dtype = DType::f32;
  bool average = false;
  bool broadcast = false;
  bool in_place = true;
  std::optional<compress::DeclaredCodec> codec{};
};

compress::DeclaredCodec lossy(compress::CodecKind kind, double k = 0) {
  compress::DeclaredCodec codec;
  codec.spec.kind = kind;
  codec.spec.k = k;
  codec.spec.scaling = true;
  codec.spec.feedback = true;
  codec.feedback = compress::Feedback::corrected;
  return codec;
}

std::vector<Kind> kinds() {
  using compress::CodecKind;
  return {{"plain"},
          {"apart", DType::f32, false, false, false},
          {"average", DType::f32, true},
          {"half", DType::f16},
          {"integers", DType::i64},
          {"broadcast", DType::f32, false, true},
          {"onebit", DType::f32, false, false, true, lossy(CodecKind::onebit)},
          {"topk", DType::f32, true, false, true, lossy(CodecKind::topk, 0.05)},
          {"randomk", DType::f32, false, false, true, lossy(CodecKind::randomk, 0.1)},
          {"dithering", DType::f32, false, false, true, lossy(CodecKind::dithering, 15)}};
}

// What every worker has after each of some rounds, in bytes.
std::vector<std::vector<std::byte>> play(const BreakingOptions& options, const Kind& kind, int rounds,
                                         uint32_t& mended, size_t bytes = 200'000) {
  BreakingJob job(options);
  const auto declared = job.declare(1, kind.dtype, bytes, kind.codec);
  std::vector<std::vector<std::byte>> seen;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::byte>> in(options.workers), out(options.workers);
    std::vector<std::shared_ptr<Operation>> operations;
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      in[rank].resize(bytes);
      if (kind.dtype == DType::f32 && kind.codec) {
        auto* values = reinterpret_cast<float*>(in[rank].data());
        for (size_t i = 0; i < bytes / 4; ++i)
          values[i] = std::sin(static_cast<float>(i * (rank + 1) + 7u * static_cast<unsigned>(round)));
      } else if (kind.dtype == DType::f32) {
        auto* values = reinterpret_cast<float*>(in[rank].data());
        for (size_t i = 0; i < bytes / 4; ++i) values[i] = static_cast<float>((i % 7 + 1) << (2 * rank));
      } else {
        for (size_t i = 0; i < bytes; ++i) in[rank][i] = static_cast<std::byte>((i * 3 + rank) & 0x33);
      }
      out[rank] = in[rank];
      std::byte* src = kind.in_place ? out[rank].data() : in[rank].data();
      operations.push_back(
          kind.broadcast
              ? job.clients[rank]->broadcast(declared[rank], out[rank].data(), 1, 0)
              : job.clients[rank]->push_pull(declared[rank], src, out[rank].data(), 0, kind.average, 0.1f));
    }
    CHECK(job.run(operations));
    for (const auto& operation : operations) CHECK_EQ(operation->failure().message, std::string());
    for (auto& result : out) seen.push_back(std::move(result));
  }
  for (const Event& event : job.server_events.drain()) {
    if (event.what == Event::What::failure) CHECK(event.kind == FailureKind::lost);
  }
  mended += job.mended;
  return seen;
}

}  // namespace

TEST(results_have_the_bits_of_an_undisturbed_run) {
  constexpr int kRounds = 12;
  for (const Kind& kind : kinds()) {
    for (const bool by_address : {false, true}) {
      uint32_t none = 0, mended = 0;
      BreakingOptions options{.by_address = by_address, .same_machine = by_address};
      const auto expected = play(options, kind, kRounds, none);
      CHECK_EQ(none, 0u);
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        options.seed = seed;
        options.losses = 60;
        options.mean_gap_ns = 250'000;
        options.codec_threads = seed % 2;
        const auto seen = play(options, kind, kRounds, mended);
        const bool alike = seen == expected;
        CHECK(alike);
        if (!alike) std::cerr << kind.name << " by_address " << by_address << " seed " << seed << "\n";
      }
      CHECK(mended > 8 * 20);
    }
  }
}

TEST(an_asynchronous_contribution_is_added_once) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const BreakingOptions options{.seed = seed, .losses = 60, .mean_gap_ns = 200'000, .asynchronous = true};
    BreakingJob job(options);
    constexpr size_t kElements = 20'000;
    constexpr int kRounds = 10;
    const auto declared = job.declare(1, DType::f32, kElements * 4);
    std::vector<std::vector<float>> data(options.workers);
    const auto all = [&](auto&& operate) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (uint16_t rank = 0; rank < options.workers; ++rank) operations.push_back(operate(rank));
      CHECK(job.run(operations));
      for (const auto& operation : operations) CHECK_EQ(operation->failure().message, std::string());
    };
    all([&](uint16_t rank) {
      data[rank].assign(kElements, 0);
      return job.clients[rank]->broadcast(declared[rank], reinterpret_cast<std::byte*>(data[rank].data()), 0,
                                          0);
    });
    for (int round = 0; round < kRounds; ++round) {
      all([&](uint16_t rank) {
        data[rank].assign(kElements, static_cast<float>(1 << (2 * rank)));
        auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
        return job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, false);
      });
    }
    all([&](uint16_t rank) {  // nothing more: what is stored comes back
      data[rank].assign(kElements, 0);
      auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
      return job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, false);
    });
    for (const auto& values : data) {
      const bool right = values == std::vector<float>(kElements, 21.0f * kRounds);
      CHECK(right);
      if (!right) std::cerr << "seed " << seed << ": " << values[0] << "\n";
    }
  }
}

TEST(an_error_that_was_lost_is_told_again) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const BreakingOptions options{.seed = seed, .losses = 40, .mean_gap_ns = 100'000};
    BreakingJob job(options);
    std::vector<float> values(50'000, 1);
    const auto declared = job.declare(1, DType::f32, values.size() * 4);
    std::vector<std::vector<float>> data(options.workers, values);
    for (int round = 0; round < 5; ++round) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (uint16_t rank = 0; rank < options.workers; ++rank) {  // one of them asks for something else
        auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
        operations.push_back(job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, rank == 1));
      }
      CHECK(job.run(operations));
      for (const auto& operation : operations) CHECK(operation->failure().kind == FailureKind::conflict);
    }
  }
}

// Ranks that have left do not take the results of others with them.
TEST(a_result_that_was_lost_is_told_again_after_others_have_left) {
  BreakingJob job({.workers = 2});
  std::vector<std::vector<float>> data(2, std::vector<float>(4000, 1));
  const auto declared = job.declare(1, DType::f32, data[0].size() * 4);
  const auto push = [&](uint16_t rank) {
    auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
    return job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, false);
  };
  const auto first = push(0), second = push(1);
  CHECK(job.run({second}));  // the answer to the other one may be on its way
  job.enter(2);              // and is lost: all connections are made again
  for (size_t i = 0; i < BreakingJob::kShards; ++i) job.shard(i).depart(1);
  CHECK(job.run({first}));
  CHECK_EQ(first->failure().message, std::string());
  CHECK(data[0] == std::vector<float>(4000, 2));
}

TEST(the_next_epoch_goes_on_with_what_is_in_flight) {
  BreakingJob job({});
  std::vector<std::vector<float>> data(3, std::vector<float>(100'000));
  const auto declared = job.declare(1, DType::f32, data[0].size() * 4);
  for (uint32_t epoch = 2; epoch < 12; ++epoch) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (uint16_t rank = 0; rank < 3; ++rank) {
      data[rank].assign(data[rank].size(), static_cast<float>(1 << (2 * rank)));
      auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
      operations.push_back(job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, false));
    }
    for (uint32_t i = 0; i < epoch; ++i) job.turn();
    job.enter(epoch);
    CHECK(job.run(operations));
    for (const auto& values : data) CHECK(values == std::vector<float>(values.size(), 21));
  }
  CHECK_EQ(job.server_counter("connections"), 3u * BreakingJob::kShards);
}

TEST(nothing_grows_over_a_thousand_losses) {
  const BreakingOptions options{.losses = 1'000, .mean_gap_ns = 100'000};
  BreakingJob job(options);
  std::vector<std::vector<float>> data(options.workers, std::vector<float>(100'000));
  const auto declared = job.declare(1, DType::f32, data[0].size() * 4);
  uint64_t early_bytes = 0;
  while (job.losses_left() > 0) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      data[rank].assign(data[rank].size(), static_cast<float>(1 << (2 * rank)));
      auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
      operations.push_back(job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, false));
    }
    CHECK(job.run(operations));
    for (const auto& values : data) CHECK(values == std::vector<float>(values.size(), 21));
    if (job.mended < 100) early_bytes = std::max(early_bytes, job.server_counter("buffer_bytes"));
  }
  CHECK(job.server_counter("buffer_bytes") <= 2 * early_bytes);
  CHECK(job.mended > 990);
  CHECK(job.counter("reconnections") > 990);
  CHECK(job.counter("pieces_sent_again") > 0);
}
