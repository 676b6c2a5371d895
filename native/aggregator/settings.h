// What an aggregator is told once, at its start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace byteps {

struct AggregatorSettings {
  uint64_t job = 0;
  uint32_t epoch = 0;
  // A child contributes once to every round: a machine whose ranks sum among themselves first, or a single
  // rank. Connections are those of ranks; a child may use any of its ranks' for a key. Names are for people.
  std::vector<std::string> children;  // "workers 2, 3 (host b)"
  std::vector<std::string> ranks;     // "worker 3 (host b)"; averages divide by their number
  std::vector<uint16_t> child_of;     // by rank
  unsigned shards = 1;
  bool deterministic = true;  // sums in the order of the children
  bool scheduled = false;     // urgent results leave first
  bool asynchronous = false;  // contributions change a stored value at once, nobody waits
  double stall_warn_s = 10;
  int verbose = 0;       // 2: every frame
  bool key_log = false;  // every contribution
  bool debug = false;    // values of debug_key, or of all keys
  std::string debug_key;
  std::string sample;  // values of this tensor
};

}  // namespace byteps
