// Leave to take memory, asked for before it is taken: who asks in vain fails by name, and the process lives.
//
// Without it a process that needs more than there is ends without a word. Under a memory cgroup, or on a
// machine that is full, malloc succeeds and the kernel kills whoever writes; under RLIMIT_AS std::bad_alloc
// comes wherever it comes. So what is large, or what a peer decides the size of, asks first. That costs an
// atomic instruction: the system is looked at again only when what it had left the last time may be used up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

namespace byteps {

// Says how much was wanted and what there is. It is a std::bad_alloc so that whoever expects that one expects
// it, too.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(const std::string& text) : text_(text) {}
  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // copies without throwing
};

// What of a kind of limit is left to this process.
struct MemoryLeft {
  uint64_t bytes = UINT64_MAX;
  std::string limit{};  // in words: "the limit of this process's address space (RLIMIT_AS, ulimit -v)"
};

// The tightest of all limits of this process: RLIMIT_AS, RLIMIT_DATA, its memory cgroups of either version,
// and the machine. Reads files of the system.
MemoryLeft memory_left();

class MemoryGate {
 public:
  explicit MemoryGate(std::function<MemoryLeft()> look = memory_left) : look_(std::move(look)) {}

  // So many bytes are about to be taken. Throws OutOfMemory if there are not so many.
  void ask(size_t bytes);
  // The same for bytes that will be taken in the course of time. Looks at the system only if they are many
  // for what it had left the last time: who takes them asks once more.
  void expect(size_t bytes);

  // Of the process, for everybody.
  static MemoryGate& shared();
  // For tests: what it believes to be left.
  void look_with(std::function<MemoryLeft()> look);

 private:
  // What is left when so many have been taken; throws OutOfMemory.
  uint64_t spare_after(size_t bytes);

  // What asking leaves to those who do not ask: Python, the C library, the stacks of threads.
  static constexpr uint64_t kSpareBytes = 16 << 20;
  // Of what is left, one part in eight may be taken before the next look, and no more than this: others take,
  // too.
  static constexpr uint64_t kLookBytes = 64 << 20;

  std::atomic<int64_t> granted_{0};
  std::mutex mutex_;  // of what follows
  std::function<MemoryLeft()> look_;
  uint64_t spare_bytes_ = 0;  // as it was seen last
};

}  // namespace byteps
