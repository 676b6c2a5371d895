// What the ranks of a job saw, and whether it is what they had to see.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/failure.h"
#include "sim/plan.h"

namespace byteps::sim {

// The end of one operation.
struct Seen {
  uint32_t tensor = 0;
  uint32_t round = 0;
  uint32_t epoch = 0;
  uint64_t counted = 0;  // who is in it, see model.h
  uint32_t hash = 0;     // of the elements
  int64_t when_ns = 0;
  FailureKind failure = FailureKind::none;
  std::string why{};  // it failed
};

using History = std::vector<Seen>;  // of one rank, in the order in which it saw them

// A sentence for everything that is wrong: not what the model says, not the same everywhere, more or less
// than all rounds, not in their order. Empty: the job was right.
std::vector<std::string> complaints(const Plan& plan, const std::vector<History>& of_ranks);

// The same for the same histories, times included.
uint64_t digest(const std::vector<History>& of_ranks);

}  // namespace byteps::sim
