// A rank's own piece of shared memory, and who has which part of it. Tensors in it need no copy to be summed.
#pragma once

#include <map>
#include <mutex>

#include "transport/shm/mapping.h"

namespace byteps {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line: two tensors never share one

  explicit Arena(size_t bytes) : memory_(Mapping::create("byteps-arena", bytes)), free_{{0, bytes}} {}

  const std::shared_ptr<Mapping>& memory() const { return memory_; }
  // Any thread. Throws std::bad_alloc when the arena is full.
  std::byte* allocate(size_t bytes);
  void free(std::byte* block);
  size_t used_bytes() const;

 private:
  const std::shared_ptr<Mapping> memory_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> bytes; neighbours are always merged
  std::map<size_t, size_t> used_;
};

}  // namespace byteps
