// What an aggregator is told once, at its start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace byteps {

struct AggregatorSettings {
  uint64_t job = 0;
  uint32_t epoch = 0;
  std::vector<std::string> children;  // by rank, as people should read them: "worker 3 (host b)"
  bool deterministic = true;          // sums in rank order
  bool scheduled = false;             // urgent results leave first
  bool asynchronous = false;          // contributions change a stored value at once, nobody waits
  double stall_warn_s = 10;
  int verbose = 0;       // 2: every frame
  bool key_log = false;  // every contribution
  bool debug = false;    // values of debug_key, or of all keys
  std::string debug_key;
  std::string sample;  // values of this tensor
};

}  // namespace byteps
