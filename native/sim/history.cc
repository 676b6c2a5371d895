#include "sim/history.h"

#include "base/crc32c.h"
#include "sim/model.h"

namespace byteps::sim {
namespace {

std::string of(const Seen& seen) {
  return "tensor " + std::to_string(seen.tensor) + " round " + std::to_string(seen.round);
}

// What is wrong with one result, in itself.
std::string wrong(const Plan& plan, const Seen& seen) {
  if (seen.failure != FailureKind::none) return of(seen) + " failed: " + seen.why;
  const uint64_t right = right_count(plan, seen.tensor, seen.round);
  if (seen.counted != right) {
    return of(seen) + " counts " + count_text(plan, seen.counted) + ", not " + count_text(plan, right);
  }
  const Elements elements = result(plan, seen.tensor, seen.round);
  if (seen.hash != crc32c(elements.data(), elements.size())) return of(seen) + " has other bits than it must";
  return {};
}

}  // namespace

std::vector<std::string> complaints(const Plan& plan, const std::vector<History>& of_ranks) {
  std::vector<std::string> found;
  // By tensor and round, what the first rank saw there that has seen it.
  std::vector<std::vector<const Seen*>> first(plan.tensors.size(), std::vector<const Seen*>(plan.rounds));
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const std::string who = "worker " + std::to_string(rank) + ": ";
    std::vector<uint32_t> next(plan.tensors.size());
    for (const Seen& seen : of_ranks[rank]) {
      if (seen.tensor >= next.size() || seen.round >= plan.rounds) {
        found.push_back(who + of(seen) + " was never asked for");
        continue;
      }
      if (seen.round != next[seen.tensor]++) {
        found.push_back(who + of(seen) + " comes after " + std::to_string(next[seen.tensor] - 1) + " others");
      }
      const Seen*& other = first[seen.tensor][seen.round];
      if (!other) {
        other = &seen;
        if (const std::string text = wrong(plan, seen); !text.empty()) found.push_back(who + text);
      } else if (seen.hash != other->hash || seen.counted != other->counted || seen.epoch != other->epoch ||
                 seen.failure != other->failure) {
        found.push_back(who + of(seen) + " is not what another worker has seen: " +
                        count_text(plan, seen.counted) + " and " + count_text(plan, other->counted) +
                        (seen.failure != FailureKind::none ? ", " + seen.why : ""));
      }
    }
    for (uint32_t tensor = 0; tensor < next.size(); ++tensor) {
      if (next[tensor] >= plan.rounds) continue;
      found.push_back(who + "tensor " + std::to_string(tensor) + " has " + std::to_string(next[tensor]) +
                      " of " + std::to_string(plan.rounds) + " rounds");
    }
  }
  return found;
}

uint64_t digest(const std::vector<History>& of_ranks) {
  uint64_t sum = 0xCBF29CE484222325u;
  const auto add = [&](uint64_t number) { sum = (sum ^ number) * 0x100000001B3u + (sum >> 47); };
  for (const History& history : of_ranks) {
    add(history.size());
    for (const Seen& seen : history) {
      add(seen.tensor);
      add(seen.round);
      add(seen.epoch);
      add(seen.counted);
      add(seen.hash);
      add(static_cast<uint64_t>(seen.when_ns));
      add(static_cast<uint64_t>(seen.failure));
    }
  }
  return sum;
}

}  // namespace byteps::sim
