// The tensors of all ranks of a machine, as far as one of them can touch them.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "local/board.h"
#include "transport/shm/mapping.h"
#include "transport/shm/peer_memory.h"

namespace byteps {

class GroupMemory {
 public:
  struct Rank {
    std::shared_ptr<Mapping> arena;
    pid_t process;
  };

  GroupMemory(uint32_t own, std::vector<Rank> ranks) : own_(own), ranks_(std::move(ranks)) {}

  uint32_t own() const { return own_; }
  uint32_t ranks() const { return static_cast<uint32_t>(ranks_.size()); }
  bool in_own_arena(const std::byte* p) const { return ranks_[own_].arena->contains(p); }
  board::Location locate(const std::byte* p) const {
    if (in_own_arena(p)) {
      return {static_cast<uint64_t>(p - ranks_[own_].arena->data()), board::Location::arena};
    }
    return {reinterpret_cast<uint64_t>(p), board::Location::plain};
  }

  // Where this process can touch it, or nullptr: it lies in another process only.
  std::byte* at(uint32_t rank, const board::Location& location, uint64_t offset) const {
    if (location.kind == board::Location::arena) return ranks_[rank].arena->data() + location.at + offset;
    return rank == own_ ? reinterpret_cast<std::byte*>(location.at) + offset : nullptr;
  }
  bool read(std::byte* to, uint32_t rank, const board::Location& location, uint64_t offset,
            size_t bytes) const {
    const std::byte* here = at(rank, location, offset);
    if (!here) return PeerMemory(ranks_[rank].process).read(to, location.at + offset, bytes);
    if (here != to) std::memcpy(to, here, bytes);
    return true;
  }
  bool write(uint32_t rank, const board::Location& location, uint64_t offset, const std::byte* from,
             size_t bytes) const {
    std::byte* here = at(rank, location, offset);
    if (!here) return PeerMemory(ranks_[rank].process).write(location.at + offset, from, bytes);
    if (here != from) std::memcpy(here, from, bytes);
    return true;
  }

 private:
  const uint32_t own_;
  const std::vector<Rank> ranks_;
};

}  // namespace byteps
