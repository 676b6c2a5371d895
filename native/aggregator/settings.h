// What an aggregator is told once, at its start.
#pragma once

#include <cstdint>
#include <string>

#include "wire/epoch.h"

#include "base/runtime.h"

namespace byteps {

struct AggregatorSettings {
  uint64_t job = 0;
  Epoch epoch;  // the first one. Connections are those of ranks; a child may use any of its ranks' for a key
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
  Runtime* runtime = &Runtime::machine();
};

}  // namespace byteps
