// A machine of several ranks inside one process, without Python: they share a board and reach each other's
// memory.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/epochs.h"
#include "worker/client.h"

namespace byteps::testing {

struct MachineOptions {
  uint32_t ranks = 2;
  bool peers_readable = true;
  double op_timeout_s = 30;
  double stall_warn_s = 10;
};

class Machine {
 public:
  explicit Machine(MachineOptions options) : ranks_(options.ranks) {
    const auto board = Mapping::create("test-board", board::bytes_for(ranks_));
    for (uint32_t r = 0; r < ranks_; ++r) arenas.push_back(std::make_shared<Arena>(size_t{256} << 20));
    std::vector<uint16_t> all;
    for (uint32_t r = 0; r < ranks_; ++r) {
      all.push_back(static_cast<uint16_t>(r));
    }
    for (uint32_t r = 0; r < ranks_; ++r) {
      std::vector<GroupMemory::Rank> memory;
      for (uint32_t i = 0; i < ranks_; ++i) memory.push_back({arenas[i]->memory(), ::getpid()});
      ClientSettings c;
      c.job = 1;
      c.epoch = epoch_of(1, static_cast<uint16_t>(ranks_), {}, 0);
      c.rank = static_cast<uint16_t>(r);
      c.op_timeout_s = options.op_timeout_s;
      c.stall_warn_s = options.stall_warn_s;
      clients.push_back(std::make_unique<Client>(c));
      GroupSettings settings{all, ranks_, options.peers_readable, false};
      clients.back()->join(
          std::make_shared<LocalGroup>(settings, board, arenas[r], GroupMemory(r, std::move(memory))));
      clients.back()->start();
    }
  }

  std::shared_ptr<Tensor> declare(uint32_t rank, uint32_t id, DType dtype, uint64_t bytes) {
    return clients[rank]->declare(id, "tensor." + std::to_string(id), dtype, Cut{bytes, 4096000}, {});
  }

 private:
  const uint32_t ranks_;

 public:
  std::vector<std::shared_ptr<Arena>> arenas;
  std::vector<std::unique_ptr<Client>> clients;
};

}  // namespace byteps::testing
