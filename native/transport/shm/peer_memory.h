// Reads and writes the memory of another process of this machine: one copy, and no page of it is shared.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace byteps {

class PeerMemory {
 public:
  explicit PeerMemory(pid_t pid) : pid_(pid) {}
  pid_t pid() const { return pid_; }
  // False if the peer is gone, the kernel forbids it, or the address is not the peer's.
  bool read(void* to, uint64_t from, size_t bytes) const;
  bool write(uint64_t to, const void* from, size_t bytes) const;

 private:
  pid_t pid_;
};

// Eight random bytes of this process and their address: who can read them can read all of it.
std::pair<uint64_t, uint64_t> memory_nonce();
// Whether this process may read that one's memory, and it is the right process.
bool can_read(pid_t pid, uint64_t address, uint64_t value);

}  // namespace byteps
