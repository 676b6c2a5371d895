#include "wire/epoch.h"

#include "wire/limits.h"

namespace byteps {

const char* invalid(const Epoch& epoch) {
  if (epoch.children.empty() || epoch.children.size() > limits::kMaxChildren)
    return "an epoch has 1 to 65535 children";
  if (epoch.ranks.size() < epoch.children.size() || epoch.ranks.size() > limits::kMaxChildren)
    return "an epoch has at least one rank for each child, and at most 65535";
  if (epoch.child_of.size() != epoch.ranks.size() || epoch.hosts.size() != epoch.ranks.size())
    return "an epoch has the host and the child of every rank";
  for (const uint16_t child : epoch.child_of) {
    if (child >= epoch.children.size()) return "a rank belongs to no child";
  }
  for (const Epoch::Server& server : epoch.servers) {
    if (server.shards == 0) return "a server has at least one shard";
  }
  return nullptr;
}

}  // namespace byteps
