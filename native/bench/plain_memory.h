// The bound of `bps bench local`: the same buffers summed in shared memory in place, with no protocol at all.
//
// Every process maps the buffers of all processes. In a round each one sums its own share of all buffers and
// writes the sum into all of them, then all meet at a barrier. No declaration, no key, no queue, no failure
// handling but a time-out: a round costs what reading, adding and writing the bytes costs, and one meeting.
//
// A bound that is easy to beat proves nothing: the share is walked in chunks that stay in the cache of the
// core, so that every byte comes from memory once and goes back once, however many buffers there are. And
// where each process has a core, it looks for the others for a moment before it sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace byteps::bench {

// Lies in shared memory and starts as zeros.
struct PlainBarrier {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> generation;  // what the processes sleep on; grows by one when all have arrived
  std::atomic<std::uint32_t> sleepers;
};
static_assert(sizeof(PlainBarrier) == 12 && std::atomic<std::uint32_t>::is_always_lock_free);

// Runs `rounds` rounds in the place of process `rank`; buffers[r] is where this process sees the float32
// buffer of process r. Sums in rank order. Returns when all processes have ended the last round. Throws
// std::runtime_error when the others do not come to the barrier within `timeout_s`; the barrier is then of no
// further use.
void plain_memory(std::span<float* const> buffers, std::size_t rank, std::size_t nbytes, std::size_t rounds,
                  PlainBarrier& barrier, double timeout_s);

}  // namespace byteps::bench
