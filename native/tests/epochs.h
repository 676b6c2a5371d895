// Epochs for tests: workers that are each a child of their own, or the children that they belong to.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "wire/epoch.h"

namespace byteps::testing {

inline Epoch epoch_of(uint32_t number, uint16_t workers, std::vector<uint16_t> child_of = {},
                      uint16_t servers = 1, uint16_t shards = 1) {
  Epoch epoch;
  epoch.number = number;
  for (uint16_t rank = 0; rank < workers; ++rank) {
    epoch.ranks.push_back("worker " + std::to_string(rank));
    epoch.hosts.push_back("here");
    epoch.child_of.push_back(child_of.empty() ? rank : child_of[rank]);
  }
  if (child_of.empty()) epoch.children = epoch.ranks;
  const size_t children =
      workers > 0 ? *std::max_element(epoch.child_of.begin(), epoch.child_of.end()) + 1u : 0;
  while (epoch.children.size() < children) {
    epoch.children.push_back("machine " + std::to_string(epoch.children.size()));
  }
  for (uint16_t server = 0; server < servers; ++server) {
    epoch.servers.push_back({"server " + std::to_string(server) + " (here)", shards});
  }
  return epoch;
}

}  // namespace byteps::testing
