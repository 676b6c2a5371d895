// A whole job inside one process, without Python: an aggregator and its workers over real sockets.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "aggregator/aggregator.h"
#include "local/group.h"
#include "tests/epochs.h"
#include "tests/sockets.h"
#include "worker/client.h"

namespace byteps::testing {

// As the scheduler tells a server that has all of a tensor: partitions go round the shards, beginning with
// this one.
inline TensorInfo placed_here(uint32_t id, std::string name, DType dtype, Cut cut, unsigned shards = 1,
                              std::optional<compress::DeclaredCodec> codec = {}) {
  cut.whole_partitions = codec.has_value();
  TensorInfo tensor{id, std::move(name), dtype, cut, {}, std::move(codec)};
  std::vector<int32_t> places;
  for (uint32_t p = 0; p < cut.partitions(); ++p) places.push_back(static_cast<int32_t>((id + p) % shards));
  if (!places.empty()) tensor.runs = {{1, std::move(places)}};
  return tensor;
}

// Of float32, in partitions of 1 MiB, called "t" and its number.
inline void declare(Aggregator& server, uint32_t id, uint64_t bytes, DType dtype = DType::f32,
                    std::optional<compress::DeclaredCodec> codec = {}, uint64_t partition_bytes = 1 << 20) {
  server.declare(
      placed_here(id, "t" + std::to_string(id), dtype, Cut{bytes, partition_bytes}, 1, std::move(codec)));
}

struct JobOptions {
  uint16_t workers = 2;
  std::vector<uint16_t> child_of{};  // by worker; empty: each is a child of its own
  bool grouped = false;              // the workers of a child sum among themselves first
  bool by_address = false;
  unsigned shards = 2;
  unsigned codec_threads = 2;
  bool compressed =
      false;  // tensors are compressed, each by a codec that loses nothing of small whole numbers
  uint64_t credit_bytes = 4 << 20;
  uint64_t partition_bytes = 1 << 20;
  bool checksum = false;
  Wire wire = Wire::unix_pair;
  bool same_machine = false;
  bool asynchronous = false;
  bool deterministic = true;
  double op_timeout_s = 30;
  double stall_warn_s = 10;
  void (*prepare)(int server_fd, int client_fd) = nullptr;  // socket options
  // Makes the server's and the client's end of the connection of a rank, if it is not plain TCP.
  std::function<std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>>(uint16_t rank)> connect{};
};

inline compress::DeclaredCodec lossless_codec(uint32_t id) {
  compress::DeclaredCodec codec;
  const compress::CodecKind kinds[] = {compress::CodecKind::topk, compress::CodecKind::fp16,
                                       compress::CodecKind::randomk};
  codec.spec.kind = kinds[id % 3];
  codec.spec.k = 1 << 24;  // all elements
  codec.spec.halves = id % 5 == 0;
  codec.feedback = id % 2 == 0 ? compress::Feedback::corrected : compress::Feedback::none;
  codec.spec.feedback = id % 2 == 0;
  return codec;
}

class Job {
 public:
  explicit Job(JobOptions options) : options_(options) {
    AggregatorSettings settings;
    settings.job = kJob;
    settings.epoch = epoch_of(kEpoch, options.workers, options.child_of, 1, uint16_t(options.shards));
    settings.asynchronous = options.asynchronous;
    settings.deterministic = options.deterministic;
    settings.stall_warn_s = options.stall_warn_s;
    settings.shards = options.shards;
    server = std::make_unique<Aggregator>(settings);
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      ClientSettings c;
      c.job = kJob;
      c.epoch = settings.epoch;
      c.rank = rank;
      c.credit_bytes = options.credit_bytes;
      c.codec_threads = options.codec_threads;
      c.op_timeout_s = options.op_timeout_s;
      c.stall_warn_s = options.stall_warn_s;
      clients.push_back(std::make_unique<Client>(c));
      for (uint16_t shard = 0; shard < options.shards; ++shard) connect(rank, shard);
    }
    if (options.grouped) form_groups(settings.epoch.child_of);
    for (auto& client : clients) client->start();
  }

  // A connection, in the place of the one before it, if there is one.
  void connect(uint16_t rank, uint16_t shard) {
    const pid_t peer = options_.by_address ? ::getpid() : 0;
    auto [server_end, client_end] = options_.connect ? options_.connect(rank) : plain(options_);
    const uint32_t tag = 1u + rank * options_.shards + shard;
    server->attach(shard, rank, std::move(server_end), options_.checksum, peer, tag);
    clients[rank]->connect(0, shard, std::move(client_end), options_.checksum, options_.same_machine, peer,
                           tag);
  }

  // Partitions go round the shards, the first one depending on the tensor.
  std::shared_ptr<Tensor> declare(uint16_t rank, uint32_t id, DType dtype, uint64_t bytes,
                                  std::optional<compress::DeclaredCodec> codec = {}) {
    if (options_.compressed) codec = lossless_codec(id);
    const std::string name = "tensor." + std::to_string(id);
    const TensorInfo here =
        placed_here(id, name, dtype, Cut{bytes, options_.partition_bytes}, options_.shards, codec);
    server->declare(here);
    std::vector<std::pair<uint16_t, uint16_t>> placement;
    for (const auto& run : here.runs) {
      for (const int32_t shard : run.shards)
        placement.emplace_back(uint16_t{0}, static_cast<uint16_t>(shard));
    }
    return clients[rank]->declare(id, name, dtype, here.cut, placement, false, codec);
  }

  static constexpr uint64_t kJob = 0x1234;
  static constexpr uint32_t kEpoch = 7;
  std::unique_ptr<Aggregator> server;
  std::vector<std::unique_ptr<Client>> clients;

 private:
  static std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>> plain(const JobOptions& options) {
    auto [server_end, client_end] = connected_pair(options.wire);
    if (options.prepare) options.prepare(server_end.get(), client_end.get());
    return {tcp_endpoint(std::move(server_end)), tcp_endpoint(std::move(client_end))};
  }

  void form_groups(const std::vector<uint16_t>& child_of) {
    for (uint16_t child = 0; child <= *std::max_element(child_of.begin(), child_of.end()); ++child) {
      std::vector<uint16_t> ranks;
      for (uint16_t rank = 0; rank < child_of.size(); ++rank) {
        if (child_of[rank] == child) ranks.push_back(rank);
      }
      if (ranks.size() < 2) continue;
      const auto board = Mapping::create("test-board", board::bytes_for(static_cast<uint32_t>(ranks.size())));
      std::vector<std::shared_ptr<Arena>> arenas;
      std::vector<GroupMemory::Rank> memory;
      for (size_t i = 0; i < ranks.size(); ++i) {
        arenas.push_back(std::make_shared<Arena>(size_t{64} << 20));
        memory.push_back({arenas[i]->memory(), ::getpid()});
      }
      for (uint32_t i = 0; i < ranks.size(); ++i) {
        GroupSettings settings{ranks, static_cast<uint32_t>(child_of.size()), true, true};
        clients[ranks[i]]->join(
            std::make_shared<LocalGroup>(settings, board, arenas[i], GroupMemory(i, memory)));
      }
    }
  }

  const JobOptions options_;
};

}  // namespace byteps::testing
