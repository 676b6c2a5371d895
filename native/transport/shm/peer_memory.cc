#include "transport/shm/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>

#include <cerrno>

namespace byteps {
namespace {

template <typename Call>
bool move(Call call, pid_t pid, uint64_t here, uint64_t there, size_t bytes) {
  while (bytes > 0) {
    const iovec local{reinterpret_cast<void*>(here), bytes};
    const iovec remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t n = call(pid, &local, 1, &remote, 1, 0);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return false;
    }
    here += static_cast<size_t>(n);
    there += static_cast<size_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

bool PeerMemory::read(void* to, uint64_t from, size_t bytes) const {
  return move(::process_vm_readv, pid_, reinterpret_cast<uint64_t>(to), from, bytes);
}

bool PeerMemory::write(uint64_t to, const void* from, size_t bytes) const {
  return move(::process_vm_writev, pid_, reinterpret_cast<uint64_t>(from), to, bytes);
}

std::pair<uint64_t, uint64_t> memory_nonce() {
  static const uint64_t nonce = [] {
    uint64_t value = 0;
    while (::getrandom(&value, sizeof value, 0) != sizeof value) {
    }
    return value;
  }();
  return {reinterpret_cast<uint64_t>(&nonce), nonce};
}

bool can_read(pid_t pid, uint64_t address, uint64_t value) {
  uint64_t found = 0;
  return PeerMemory(pid).read(&found, address, sizeof found) && found == value;
}

}  // namespace byteps
