// The memory of another process of this machine: one copy in the kernel, no shared mapping, any address.
//
// The kernel permits it between processes of one user, unless it is hardened (Yama, seccomp) or they live in
// different pid namespaces. Nobody reasons about that: can_read() tries.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "wire/offer.h"

namespace byteps {

class PeerMemory {
 public:
  explicit PeerMemory(pid_t pid) : pid_(pid) {}

  pid_t pid() const { return pid_; }
  // Whole or not at all, as far as the caller may rely on; false: error() says why.
  bool read(void* to, uint64_t from, size_t bytes);
  bool write(uint64_t to, const void* from, size_t bytes);

  enum class Copied {
    yes,
    withdrawn,   // the sender has given the memory up meanwhile: nothing at `to` means anything
    gone,        // the process has ended
    impossible,  // a broken offer, see error()
  };
  // Copies `bytes` of what a frame offers; see wire/offer.h.
  Copied copy(void* to, const Offer& offer, size_t bytes);

  int error() const { return errno_; }
  // For people: "process 4711: Bad address".
  std::string error_text() const;

 private:
  const pid_t pid_;
  int errno_ = 0;
};

// Whether other processes could read this memory of ours: not what a device driver has mapped.
bool can_offer(const void* data);

// A word of this process, its address and its value: who finds the value at the address in the memory of a
// process has found this one, and is able to read it.
std::pair<uint64_t, uint64_t> memory_nonce();
bool can_read(pid_t pid, uint64_t address, uint64_t value);

// Not to be guessed, not negative as a signed number, never 0.
uint64_t random_word();

}  // namespace byteps
