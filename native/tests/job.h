// A whole job inside one process, without Python: an aggregator and its workers over real sockets.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "aggregator/aggregator.h"
#include "worker/client.h"

namespace byteps::testing {

struct JobOptions {
  uint16_t workers = 2;
  unsigned shards = 2;
  uint64_t credit_bytes = 4 << 20;
  uint64_t partition_bytes = 1 << 20;
  bool checksum = false;
  bool asynchronous = false;
  bool deterministic = true;
  double op_timeout_s = 30;
  double stall_warn_s = 10;
};

class Job {
 public:
  explicit Job(JobOptions options) : options_(options) {
    AggregatorSettings settings;
    settings.job = kJob;
    settings.epoch = kEpoch;
    settings.asynchronous = options.asynchronous;
    settings.deterministic = options.deterministic;
    settings.stall_warn_s = options.stall_warn_s;
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      settings.children.push_back("worker " + std::to_string(rank) + " (here)");
    }
    server = std::make_unique<Aggregator>(settings, options.shards);
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      ClientSettings c;
      c.job = kJob;
      c.epoch = kEpoch;
      c.rank = rank;
      c.credit_bytes = options.credit_bytes;
      c.op_timeout_s = options.op_timeout_s;
      c.stall_warn_s = options.stall_warn_s;
      c.workers = settings.children;
      c.servers = {"server 0 (here)"};
      clients.push_back(std::make_unique<Client>(c));
      for (uint16_t shard = 0; shard < options.shards; ++shard) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
        server->attach(shard, rank, Fd(ends[0]), options.checksum);
        clients.back()->connect(0, shard, Fd(ends[1]), options.checksum);
      }
      clients.back()->start();
    }
  }

  // Partitions go round the shards, the first one depending on the tensor.
  std::shared_ptr<Tensor> declare(uint16_t rank, uint32_t id, DType dtype, uint64_t bytes) {
    const Cut cut{bytes, options_.partition_bytes};
    std::vector<std::pair<uint16_t, uint16_t>> placement;
    for (uint32_t p = 0; p < cut.partitions(); ++p) {
      placement.emplace_back(uint16_t{0}, static_cast<uint16_t>((id + p) % options_.shards));
    }
    return clients[rank]->declare(id, "tensor." + std::to_string(id), dtype, cut, placement);
  }

  static constexpr uint64_t kJob = 0x1234;
  static constexpr uint32_t kEpoch = 7;
  std::unique_ptr<Aggregator> server;
  std::vector<std::unique_ptr<Client>> clients;

 private:
  const JobOptions options_;
};

}  // namespace byteps::testing
