#include "transport/shm/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace byteps {
namespace {

using Move = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Returns 0 or an errno. The kernel stops at the first page that is missing and says how far it came: only
// the call after that one names the error.
int move(Move call, pid_t pid, void* own, uint64_t other, size_t bytes) {
  auto* at = static_cast<std::byte*>(own);
  while (bytes > 0) {
    const iovec local{at, bytes};
    const iovec remote{reinterpret_cast<void*>(static_cast<uintptr_t>(other)), bytes};
    const ssize_t n = call(pid, &local, 1, &remote, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EFAULT;
    at += n;
    other += static_cast<size_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace

bool PeerMemory::read(void* to, uint64_t from, size_t bytes) {
  errno_ = move(::process_vm_readv, pid_, to, from, bytes);
  return errno_ == 0;
}

bool PeerMemory::write(uint64_t to, const void* from, size_t bytes) {
  errno_ = move(::process_vm_writev, pid_, const_cast<void*>(from), to, bytes);
  return errno_ == 0;
}

PeerMemory::Copied PeerMemory::copy(void* to, const Offer& offer, size_t bytes) {
  const bool copied = read(to, offer.address, bytes);
  const int error = errno_;
  uint64_t ticket = 0;
  // A call of its own, after the copy has returned: the order of the two is what the ticket is worth.
  if (!read(&ticket, offer.lease, sizeof ticket)) return errno_ == ESRCH ? Copied::gone : Copied::impossible;
  if (ticket != offer.ticket) return Copied::withdrawn;  // also explains a copy that failed
  if (copied) return Copied::yes;
  errno_ = error;
  return Copied::impossible;
}

std::string PeerMemory::error_text() const {
  return "process " + std::to_string(pid_) + ": " + std::strerror(errno_);
}

bool can_offer(const void* data) {
  std::byte byte;
  return PeerMemory(::getpid()).read(&byte, reinterpret_cast<uintptr_t>(data), 1);
}

std::pair<uint64_t, uint64_t> memory_nonce() {
  static const uint64_t nonce = random_word();
  return {reinterpret_cast<uintptr_t>(&nonce), nonce};
}

bool can_read(pid_t pid, uint64_t address, uint64_t value) {
  uint64_t found = 0;
  return pid > 0 && PeerMemory(pid).read(&found, address, sizeof found) && found == value;
}

uint64_t random_word() {
  std::random_device device;
  return ((uint64_t{device()} << 32 | device()) >> 2) | 1;
}

}  // namespace byteps
