// The very objects of workers and a server, over simulated connections, in one thread: what arrives is what
// arrives over sockets.
#include <algorithm>
#include <memory>
#include <vector>

#include "aggregator/shard.h"
#include "base/clock.h"
#include "tests/check.h"
#include "tests/job.h"
#include "transport/sim/network.h"
#include "worker/client.h"

using namespace byteps;

namespace {

constexpr uint16_t kWorkers = 3;

AggregatorSettings server_settings() {
  AggregatorSettings settings;
  settings.job = 1;
  settings.epoch = 1;
  byteps::testing::set_children(settings, kWorkers, {});
  return settings;
}

struct SimJob {
  explicit SimJob(const sim::WireOptions& wire)
      : network(1), settings(server_settings()), shard(settings, tensors, 0, events) {
    for (uint16_t rank = 0; rank < kWorkers; ++rank) {
      ClientSettings c;
      c.job = 1;
      c.epoch = 1;
      c.rank = rank;
      c.ranks = kWorkers;
      c.credit_bytes = 1 << 20;
      c.piece_bytes = limits::kFarPieceBytes;
      c.servers = {"server 0 (simulated)"};
      c.own_threads = false;
      clients.push_back(std::make_unique<Client>(c));
      auto connection = network.connect(wire);
      shard.attach(rank, std::move(connection.first), true, 0);
      clients.back()->connect(0, 0, std::move(connection.second), true, false);
      clients.back()->start();
    }
  }
  // Until they are done. Their deadlines are still those of the real clock.
  bool run(const std::vector<std::shared_ptr<Operation>>& operations) {
    const auto done = [](const auto& operation) { return operation->done(); };
    for (const int64_t end = now_ns() + 30 * kNanosecondsPerSecond; now_ns() < end;) {
      bool busy = shard.turn();
      for (auto& client : clients) busy |= client->turn();
      if (busy) continue;
      if (std::all_of(operations.begin(), operations.end(), done)) return true;
      shard.pass(now_ns());
      for (auto& client : clients) client->pass(now_ns());
      if (const int64_t next = network.next_event_ns(); next != EventLoop::kNever) network.advance(next);
    }
    return false;
  }

  sim::Network network;
  const AggregatorSettings settings;
  TensorTable tensors;
  EventQueue events;
  Shard shard;
  std::vector<std::unique_ptr<Client>> clients;
};

}  // namespace

TEST(workers_and_a_server_sum_over_simulated_connections) {
  SimJob job({.jitter_ns = 100'000, .bytes_per_s = 1e9, .segment_bytes = 9000, .ragged = true});
  constexpr size_t kElements = 100'000;
  const Cut cut{kElements * sizeof(float), 1 << 20, false, limits::kFarPieceBytes};
  job.tensors.declare(byteps::testing::placed_here(1, "t1", DType::f32, cut));
  std::vector<std::vector<float>> data(kWorkers);
  std::vector<std::shared_ptr<Tensor>> declared;
  for (auto& client : job.clients) declared.push_back(client->declare(1, "t1", DType::f32, cut, {{0, 0}}));
  for (int round = 0; round < 5; ++round) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (uint16_t rank = 0; rank < kWorkers; ++rank) {
      data[rank].assign(kElements, static_cast<float>(1 << (2 * rank)));  // shows who was counted how often
      auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
      operations.push_back(job.clients[rank]->push_pull(declared[rank], bytes, bytes, 0, false));
    }
    CHECK(job.run(operations));
    for (uint16_t rank = 0; rank < kWorkers; ++rank) {
      CHECK(data[rank] == std::vector<float>(kElements, 21));
    }
  }
  CHECK_EQ(job.events.drain().size(), 0u);
  for (auto& client : job.clients) client->close();
}
