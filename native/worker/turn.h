// Which server a worker begins with, so that not all workers begin with the same. Pure.
//
// All workers send the pieces of a tensor in one order over all their links. If that order were the same on
// all of them, they would all send to one server at a time: what n links bring then has to pass through one,
// and waits in the queue in front of it or is lost there, while the links of the other servers idle. So every
// worker begins with another server. A cycle goes over the servers first and over their shards second: two
// shards share one link.
#pragma once

#include <cstdint>

namespace byteps {

constexpr uint32_t kMostShards = 256;  // of one server

// The place of a link in a worker's cycle, of 2^32.
inline uint32_t turn_of(uint32_t server, uint32_t servers, uint32_t shard, uint32_t child,
                        uint32_t children) {
  const uint64_t first = uint64_t{child} * servers / children;
  const uint64_t slot = uint64_t{shard % kMostShards} * servers + (server + servers - first) % servers;
  return static_cast<uint32_t>((slot << 32) / (uint64_t{servers} * kMostShards));
}

}  // namespace byteps
