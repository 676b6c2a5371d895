// Short jobs over sealed connections with somebody in the middle who flips, drops, repeats, swaps, reflects
// or cuts bytes at random positions. A result is exact or there is none; what was done is named.
//
//   stress_meddler [JOBS [FIRST_SEED]]
#include <map>

#include "tests/meddler.h"
#include "tests/stress.h"
#include "transport/sealed/sealed_endpoint.h"
#include "transport/tcp/tcp_stream.h"

namespace {

using namespace byteps;
using namespace byteps::testing;

constexpr uint16_t kWorkers = 2;
constexpr int64_t kOperationNs =
    kNanosecondsPerSecond / 4;  // what was dropped for good is waited for so long

Deed draw(std::mt19937_64& random, uint64_t bytes) {
  Deed deed;
  deed.mischief = static_cast<Mischief>(random() % kMischiefs);
  // Anywhere in what travels, headers and goodbyes included; often near its beginning.
  deed.at = random() % (random() % 3 == 0 ? 300 : bytes);
  deed.bytes = 1 + random() % (random() % 2 == 0 ? 8 : 2000);
  deed.to_server = random() % 2 == 0;
  deed.mask = std::byte(1 << (random() % 8));
  return deed;
}

sealed::Key key_of(std::mt19937_64& random) {
  sealed::Key key;
  for (auto& byte : key) byte = static_cast<std::byte>(random());
  return key;
}

std::string first_words(const std::string& reason) {
  for (const char* word : {"changed", "replayed", "reordered or dropped", "reflected", "truncated",
                           "connection closed inside a frame", "connection closed"}) {
    if (reason.find(word) != std::string::npos) return word;
  }
  return reason.empty() ? "no reason" : reason;
}

class OneJob {
 public:
  OneJob(uint64_t seed, std::map<std::string, int>& told) : random_(seed), told_(told) {
    elements_ = 1 + random_() % (random_() % 4 == 0 ? 30'000 : 2'000);
    deed_ = draw(random_, 4 * elements_ * kRounds);
    JobOptions options{.workers = kWorkers, .shards = 1, .partition_bytes = 32'768};
    options.op_timeout_s = static_cast<double>(kOperationNs) / 1e9;
    options.connect = [this](uint16_t rank) { return ends_of(rank); };
    job_ = std::make_unique<Job>(options);
  }

  // How many rounds both workers finished.
  int run() {
    std::vector<std::shared_ptr<Tensor>> tensors;
    for (uint16_t rank = 0; rank < kWorkers; ++rank) {
      tensors.push_back(job_->declare(rank, 1, DType::f32, elements_ * 4));
    }
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::vector<float>> data(kWorkers, std::vector<float>(elements_));
      std::vector<std::shared_ptr<Operation>> ops;
      for (uint16_t rank = 0; rank < kWorkers; ++rank) {
        for (size_t i = 0; i < elements_; ++i) data[rank][i] = value(i, rank);
        auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
        ops.push_back(job_->clients[rank]->push_pull(tensors[rank], bytes, bytes, 0, false));
      }
      bool all = true;
      for (uint16_t rank : {uint16_t{1}, uint16_t{0}}) all &= finished(*ops[rank], data[rank], rank);
      if (!all) return round;
    }
    return kRounds;
  }

  const Deed& deed() const { return deed_; }
  static constexpr int kRounds = 3;

 private:
  std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>> ends_of(uint16_t rank) {
    const auto cipher = random_() % 2 ? sealed::Cipher::aes_256_gcm : sealed::Cipher::chacha20_poly1305;
    const sealed::Key there = key_of(random_), back = key_of(random_);
    Fd server, client;
    if (rank == 1) {
      meddler_ = std::make_unique<Meddler>(deed_);
      server = std::move(meddler_->server_end);
      client = std::move(meddler_->client_end);
    } else {
      std::tie(server, client) = connected_pair(Wire::unix_pair);
    }
    return {sealed_endpoint(std::make_shared<TcpStream>(std::move(server)), {cipher, back, there}),
            sealed_endpoint(std::make_shared<TcpStream>(std::move(client)), {cipher, there, back})};
  }

  // What the ends say of each other, told to the others as the control plane does it.
  void hear() {
    for (const Event& event : job_->server->events().drain()) {
      if (event.what != Event::What::failure) continue;
      ++told_[first_words(event.text)];
      job_->server->depart(static_cast<uint16_t>(event.number));
    }
    for (const Event& event : job_->clients[1]->events().drain()) {
      if (event.what != Event::What::failure) continue;
      ++told_[first_words(event.text)];
      job_->clients[1]->fail({FailureKind::lost, event.text, Role::server, 0, "here"});
    }
  }

  // Its result is exact, or there is none.
  bool finished(Operation& op, const std::vector<float>& data, uint16_t rank) {
    const int64_t end = machine_now_ns() + kPatienceNs;
    while (!op.wait_for(5'000'000)) {
      hear();
      if (machine_now_ns() > end) {
        CHECK(!"an operation that never ends");
        return false;
      }
    }
    if (const std::string& failure = op.failure().message; !failure.empty()) {
      if (failure.find("no result after") != std::string::npos) ++told_["nothing came any more"];
      if (rank == 1) job_->clients[1]->close();
      hear();
      return false;
    }
    for (size_t i = 0; i < data.size(); ++i) {
      const float expected = static_cast<float>(i % 7 + 1) * 5;
      if (data[i] != expected) {
        CHECK_EQ(data[i], expected);
        return false;
      }
    }
    return true;
  }

  std::mt19937_64 random_;
  std::map<std::string, int>& told_;
  size_t elements_ = 0;
  Deed deed_;
  std::unique_ptr<Meddler> meddler_;  // outlives the job's ends
  std::unique_ptr<Job> job_;
};

}  // namespace

int main(int argc, char** argv) {
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 300;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::printf("%d jobs from seed %llu on\n", jobs, static_cast<unsigned long long>(first));
  int whole = 0, left_alone = 0;
  std::map<std::string, int> told;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(jobs); ++seed) {
    const int before = byteps::check::failures();
    OneJob job(seed, told);
    const bool finished = job.run() == OneJob::kRounds;
    whole += finished;
    if (job.deed().mischief == Mischief::none) {
      ++left_alone;
      CHECK(finished);
    }
    if (byteps::check::failures() != before)
      std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  }
  std::printf("%d left alone; %d finished all rounds; ended:\n", left_alone, whole);
  for (const auto& [reason, count] : told) std::printf("  %5d %s\n", count, reason.c_str());
  CHECK(told["changed"] > jobs / 20);
  CHECK(told["reflected"] > 0);
  return byteps::check::failures() != 0;
}
