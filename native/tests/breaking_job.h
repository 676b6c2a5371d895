// Workers and a server over simulated connections that break again and again, in one thread: the very objects
// of a job. Whoever has lost a connection gets another one, as the control plane would give it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "aggregator/shard.h"
#include "base/clock.h"
#include "tests/by_hand.h"
#include "tests/check.h"
#include "tests/epochs.h"
#include "tests/job.h"
#include "transport/sim/network.h"
#include "transport/sim/wire.h"
#include "worker/client.h"

namespace byteps::testing {

struct BreakingOptions {
  uint64_t seed = 1;
  uint16_t workers = 3;
  uint32_t losses = 0;      // of connections, at random moments, over the whole job
  int64_t mean_gap_ns = 0;  // between them, in the network's time
  bool asynchronous = false;
  bool by_address = false;
  bool same_machine = false;
  unsigned codec_threads = 0;
  uint64_t credit_bytes = 256 << 10;
};

class BreakingJob {
 public:
  static constexpr uint16_t kShards = 2;
  static constexpr int64_t kStepNs = 1'000'000;  // between two looks at deadlines

  explicit BreakingJob(const BreakingOptions& options)
      : options_(options), network_(options.seed), left_(options.losses) {
    settings_.job = 1;
    settings_.runtime = &hand_;
    settings_.epoch = epoch_of(1, options.workers, {}, 1, kShards);
    settings_.asynchronous = options.asynchronous;
    settings_.shards = kShards;
    const auto epoch = std::make_shared<const Epoch>(settings_.epoch);
    for (uint16_t i = 0; i < kShards; ++i) {
      shards_.push_back(std::make_unique<Shard>(settings_, epoch, tensors_, i, server_events));
    }
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      ClientSettings c;
      c.job = 1;
      c.epoch = settings_.epoch;
      c.rank = rank;
      c.credit_bytes = options.credit_bytes;
      c.piece_bytes = 16 << 10;
      c.codec_threads = options.codec_threads;
      c.io_threads = 1;
      c.runtime = &hand_;
      c.op_timeout_s = 0;
      clients.push_back(std::make_unique<Client>(c));
      for (uint16_t shard = 0; shard < kShards; ++shard) connect(rank, shard);
      clients.back()->start();
    }
    plan_loss();
  }
  ~BreakingJob() {
    for (auto& client : clients) client->close();
  }

  std::vector<std::shared_ptr<Tensor>> declare(uint32_t id, DType dtype, uint64_t bytes,
                                               std::optional<compress::DeclaredCodec> codec = {}) {
    Cut cut{bytes, 64 << 10, false, 16 << 10};
    const TensorInfo here = placed_here(id, "t" + std::to_string(id), dtype, cut, kShards, codec);
    tensors_.declare(here);
    std::vector<std::pair<uint16_t, uint16_t>> placement;
    for (const auto& run : here.runs) {
      for (const int32_t shard : run.shards)
        placement.emplace_back(uint16_t{0}, static_cast<uint16_t>(shard));
    }
    std::vector<std::shared_ptr<Tensor>> made;
    for (auto& client : clients)
      made.push_back(client->declare(id, here.name, dtype, cut, placement, false, codec));
    return made;
  }

  // Until they are done; false: nothing moves any more, or it takes too long.
  bool run(const std::vector<std::shared_ptr<Operation>>& operations) {
    const auto done = [](const auto& operation) { return operation->done(); };
    for (const int64_t end = network_.now_ns() + 60 * kNanosecondsPerSecond; network_.now_ns() < end;) {
      bool busy = hand_.turn();
      while (hand_.do_job()) busy = true;
      mend();
      if (busy) continue;
      if (std::all_of(operations.begin(), operations.end(), done)) return true;
      const int64_t before = network_.now_ns();
      network_.advance(std::min(network_.next_event_ns(), before + kStepNs));
      hand_.pass(network_.now_ns() - before);
    }
    return false;
  }
  // What there is to do now, and no time passes.
  void turn() { hand_.turn(); }

 private:
  ByHand hand_;  // outlives what it has made

 public:
  uint32_t losses_left() const { return left_; }
  // Connections that have been made in the place of others.
  uint32_t mended = 0;
  EventQueue server_events;
  std::vector<std::unique_ptr<Client>> clients;
  uint64_t counter(const std::string& name) const {
    uint64_t total = 0;
    for (auto& client : clients) total += client->counters().at(name);
    return total;
  }
  uint64_t server_counter(const std::string& name) const {
    std::map<std::string, uint64_t> totals;
    for (const auto& shard : shards_) shard->counters().add_to(totals);
    return totals.at(name);
  }
  Shard& shard(size_t index) { return *shards_[index]; }
  // The next epoch for everybody, with the same members.
  void enter(uint32_t number) {
    settings_.epoch.number = number;
    for (auto& shard : shards_) shard->enter(std::make_shared<const Epoch>(settings_.epoch));
    for (auto& client : clients) client->enter(settings_.epoch);
    for (uint16_t rank = 0; rank < options_.workers; ++rank) {
      for (uint16_t shard = 0; shard < kShards; ++shard) connect(rank, shard);
    }
  }

 private:
  void connect(uint16_t rank, uint16_t shard) {
    auto connection = network_.connect({.jitter_ns = 100'000,
                                        .bytes_per_s = 1e9,
                                        .segment_bytes = 9000,
                                        .ragged = true,
                                        .same_machine = options_.same_machine});
    const uint32_t tag = ++last_tag_;
    const pid_t pid = options_.by_address ? ::getpid() : 0;
    places_[tag] = {rank, shard};
    wires_[{rank, shard}] = connection.wire;
    shards_[shard]->attach(settings_.epoch.number, rank, std::move(connection.first), true, pid, tag);
    clients[rank]->connect(0, shard, std::move(connection.second), true, options_.same_machine, pid, tag);
  }
  // In the network's time: a connection may break while its successor is being made, or twice in a round.
  void plan_loss() {
    if (left_ == 0) return;
    const auto gap = static_cast<int64_t>(network_.random(2 * options_.mean_gap_ns + 1));
    network_.at(network_.now_ns() + gap, [this] {
      const uint16_t rank = static_cast<uint16_t>(network_.random(options_.workers));
      const uint16_t shard = static_cast<uint16_t>(network_.random(kShards));
      sim::Wire& wire = *wires_[{rank, shard}];
      if (!wire.lost()) {  // else its successor is being made
        --left_;
        wire.lose();
      }
      plan_loss();
    });
  }
  void mend() {
    for (auto& client : clients) {
      for (const Event& event : client->events().drain()) {
        if (event.what != Event::What::failure) continue;
        CHECK(event.kind == FailureKind::lost);
        if (event.kind != FailureKind::lost) std::cerr << event.text << "\n";
        const auto place = places_.find(event.connection);
        CHECK(place != places_.end());
        const auto [rank, shard] = place->second;
        places_.erase(place);
        ++mended;
        // Some time passes: the others go on meanwhile.
        network_.at(network_.now_ns() + static_cast<int64_t>(network_.random(300'000)),
                    [this, rank = rank, shard = shard] { connect(rank, shard); });
      }
    }
  }

  const BreakingOptions options_;
  sim::Network network_;
  uint32_t left_;
  AggregatorSettings settings_;
  TensorTable tensors_;
  std::vector<std::unique_ptr<Shard>> shards_;
  uint32_t last_tag_ = 0;
  std::map<uint32_t, std::pair<uint16_t, uint16_t>> places_;
  std::map<std::pair<uint16_t, uint16_t>, std::shared_ptr<sim::Wire>> wires_;
};

}  // namespace byteps::testing
