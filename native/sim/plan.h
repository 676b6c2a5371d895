// A simulated job as a value: who is in it, what they exchange, over which wires, and what goes wrong when.
//
// All of it is drawn from a seed, and a run of it is a function of it: a job that fails is told as its seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/tuning.h"
#include "compress/declared.h"
#include "reduce/dtype.h"
#include "transport/sim/network.h"
#include "wire/cut.h"

namespace byteps::sim {

struct TensorPlan {
  DType dtype = DType::f32;
  uint64_t elements = 1;
  uint32_t partition_bytes = 1 << 20;
  int32_t priority = 0;
  std::optional<compress::DeclaredCodec> codec{};  // one that loses nothing of small whole numbers
  bool in_place = true;                            // the result comes where the contribution was
};

// Something that a job survives.
struct Fault {
  enum class What : uint8_t {
    frozen_worker,  // `member` stands still for a while
    frozen_server,
    silent_link,  // between worker `member` and server `server` nothing comes through for a while
    broken_link,  // all connections between the two break, and are made again one by one after up to `for_ns`
  };
  What what = What::frozen_worker;
  int64_t when_ns = 0;
  int64_t for_ns = 0;
  uint16_t member = 0;
  uint16_t server = 0;
};

struct Plan {
  uint64_t seed = 1;
  uint16_t workers = 2;
  uint16_t servers = 1;
  uint16_t shards = 1;  // of each server
  unsigned io_threads = 1;
  unsigned codec_threads = 0;
  bool on_one_machine = false;
  bool by_address = false;  // payloads, on one machine
  bool checksum = false;
  bool deterministic = true;
  bool scheduled = false;
  uint64_t credit_bytes = 1 << 20;
  uint32_t piece_bytes = tuning::kFarPieceBytes;
  WireOptions wire{};
  int64_t reaction_ns = 20'000;    // the most that passes before a thread runs
  int64_t compute_ns = 1'000'000;  // the most between the results of a step and the gradients of the next one
  bool cross_barrier = false;      // a tensor does not wait for the others of its step
  bool calls_differ = true;        // averages and broadcasts, too
  uint32_t rounds = 5;             // of each tensor
  std::vector<TensorPlan> tensors{};
  std::vector<Fault> faults{};

  Cut cut_of(uint32_t tensor) const;
  // Where a partition lives: a server, and the shard of its first piece.
  std::pair<uint16_t, uint16_t> place_of(uint32_t tensor, uint32_t partition) const;
};

Plan drawn_plan(uint64_t seed);

// For people: one line.
std::string text_of(const Plan& plan);

}  // namespace byteps::sim
