// Workers begin with different servers, and go over all servers before they come to the next shards.
#include "worker/turn.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/check.h"

using namespace byteps;

namespace {

// (server, shard) in the order in which a worker sends to them.
std::vector<std::pair<uint32_t, uint32_t>> cycle(uint32_t servers, uint32_t shards, uint32_t child,
                                                 uint32_t children) {
  std::vector<std::pair<uint32_t, uint32_t>> links;
  for (uint32_t server = 0; server < servers; ++server) {
    for (uint32_t shard = 0; shard < shards; ++shard) links.emplace_back(server, shard);
  }
  std::sort(links.begin(), links.end(), [&](const auto& a, const auto& b) {
    return turn_of(a.first, servers, a.second, child, children) <
           turn_of(b.first, servers, b.second, child, children);
  });
  return links;
}

}  // namespace

TEST(as_many_workers_as_servers_are_never_at_the_same_one) {
  constexpr uint32_t kCount = 4, kShards = 2;
  for (size_t slot = 0; slot < kCount * kShards; ++slot) {
    std::set<uint32_t> at;
    for (uint32_t child = 0; child < kCount; ++child)
      at.insert(cycle(kCount, kShards, child, kCount)[slot].first);
    CHECK_EQ(at.size(), size_t{kCount});
  }
}

TEST(every_server_has_about_as_many_workers_at_any_time) {
  for (const auto& [children, servers] : {std::pair{8u, 4u}, {4u, 6u}, {3u, 7u}, {12u, 8u}, {1u, 3u}}) {
    for (size_t slot = 0; slot < servers; ++slot) {
      std::vector<uint32_t> there(servers);
      for (uint32_t child = 0; child < children; ++child)
        ++there[cycle(servers, 1, child, children)[slot].first];
      CHECK(*std::max_element(there.begin(), there.end()) <= (children + servers - 1) / servers);
    }
  }
}

TEST(all_servers_come_before_the_second_shard_of_any) {
  const auto links = cycle(3, 4, 1, 2);
  for (size_t slot = 0; slot < links.size(); ++slot) CHECK_EQ(links[slot].second, slot / 3);
}
