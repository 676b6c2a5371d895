#include "bench/plain_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/spin.h"
#include "reduce/sum.h"

namespace byteps::bench {
namespace {

// Of one buffer. The chunks of a few buffers fit into L2 together, and a call of a kernel costs nothing.
constexpr std::size_t kChunkElements = 4096;
// Shares begin at whole cache lines, so that no line is written by two processes.
constexpr std::size_t kLineElements = 16;
// Twice what a sleep and a wake-up take, and as long as our own ranks spin.
constexpr std::int64_t kSpinNs = 50'000;

std::size_t share_begin(std::size_t elements, std::size_t index, std::size_t total) {
  if (index == total) return elements;
  return elements * index / total / kLineElements * kLineElements;
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit) {
  // Not FUTEX_PRIVATE_FLAG: the sleepers are other processes.
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

void meet(PlainBarrier& barrier, std::size_t total, double timeout_s) {
  const std::uint32_t generation = barrier.generation.load(std::memory_order_acquire);
  if (barrier.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == total) {
    barrier.arrived.store(0, std::memory_order_relaxed);
    barrier.generation.fetch_add(1, std::memory_order_seq_cst);
    if (barrier.sleepers.load(std::memory_order_seq_cst) > 0)
      futex(barrier.generation, FUTEX_WAKE, INT_MAX, nullptr);
    return;
  }
  const auto all_came = [&] { return barrier.generation.load(std::memory_order_acquire) != generation; };
  if (total <= std::thread::hardware_concurrency() && spin_until(kSpinNs, all_came)) return;
  barrier.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const double whole_s = std::floor(timeout_s);
  const timespec limit{static_cast<time_t>(whole_s), static_cast<long>((timeout_s - whole_s) * 1e9)};
  while (!all_came()) {
    if (futex(barrier.generation, FUTEX_WAIT, generation, &limit) == 0 || errno != ETIMEDOUT) continue;
    throw std::runtime_error(
        "plain memory: " + std::to_string(barrier.arrived.load(std::memory_order_relaxed)) + " of " +
        std::to_string(total) + " processes came to the barrier within " + std::to_string(timeout_s) + " s");
  }
  barrier.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace

void plain_memory(std::span<float* const> buffers, std::size_t rank, std::size_t nbytes, std::size_t rounds,
                  PlainBarrier& barrier, double timeout_s) {
  if (rank >= buffers.size() || nbytes % sizeof(float) != 0) {
    throw std::invalid_argument(
        "plain memory: expected a rank below the number of buffers and whole float32, " +
        std::string("got rank ") + std::to_string(rank) + " of " + std::to_string(buffers.size()) + " and " +
        std::to_string(nbytes) + " bytes");
  }
  const std::size_t elements = nbytes / sizeof(float);
  const std::size_t begin = share_begin(elements, rank, buffers.size());
  const std::size_t end = share_begin(elements, rank + 1, buffers.size());
  meet(barrier, buffers.size(), timeout_s);  // all contributions are there
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t at = begin; at < end; at += kChunkElements) {
      const std::size_t count = std::min(kChunkElements, end - at);
      float* const sum = buffers[0] + at;
      for (float* const other : buffers.subspan(1)) add(DType::f32, sum, other + at, count);
      for (float* const other : buffers.subspan(1)) std::memcpy(other + at, sum, count * sizeof(float));
    }
    meet(barrier, buffers.size(), timeout_s);
  }
}

}  // namespace byteps::bench
