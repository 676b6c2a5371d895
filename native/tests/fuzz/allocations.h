// Memory that runs out at a moment that the script chooses. Included by the one source file of a fuzzer.
//
// Whatever the loops of the core do must survive it, at any of their allocations: what they were doing fails
// by its name, and nothing else does.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/memory.h"

namespace byteps::fuzz {

// How many allocations succeed from now on, and whether all that follow fail or just one. Negative: all
// succeed.
inline thread_local int64_t allocations_left = -1;
inline thread_local bool one_fails = true;

inline void* allocate(size_t bytes, size_t alignment) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    if (!one_fails) allocations_left = 0;
    throw std::bad_alloc();
  }
  void* memory = alignment == 0
                     ? std::malloc(bytes == 0 ? 1 : bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

// While it lives, memory is as scarce as it says.
class Scarcity {
 public:
  Scarcity(int64_t left, bool one) {
    allocations_left = left;
    one_fails = one;
  }
  ~Scarcity() { allocations_left = -1; }
};

// What the large allocations of the core believe to be left, until the next call.
inline void pretend_left(uint64_t bytes) {
  MemoryGate::shared().look_with([bytes] { return MemoryLeft{bytes + (16 << 20), "a fuzzer's whim"}; });
}

}  // namespace byteps::fuzz

// Not inlined: a compiler that sees through one of a pair only takes it for a mistake.
#define BYTEPS_APART __attribute__((noinline))
BYTEPS_APART void* operator new(size_t bytes) { return byteps::fuzz::allocate(bytes, 0); }
BYTEPS_APART void* operator new(size_t bytes, std::align_val_t alignment) {
  return byteps::fuzz::allocate(bytes, static_cast<size_t>(alignment));
}
BYTEPS_APART void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
BYTEPS_APART void operator delete(void* memory) noexcept { std::free(memory); }
BYTEPS_APART void operator delete(void* memory, size_t) noexcept { std::free(memory); }
BYTEPS_APART void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
BYTEPS_APART void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
