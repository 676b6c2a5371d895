// The memory in which the ranks of one machine meet: one slot for every tensor, one bell for every rank.
//
// It is an aggregator whose state lies in shared memory and whose work is done by whichever rank is there:
// the rules of rounds are those of aggregator/key_round.h, but there is no thread to wake up first, because
// waking up costs more than summing a small tensor. All zeros is the state of a board that nobody has used,
// and memory that no slot has touched does not exist, so tensor ids index the slots directly.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/event_count.h"
#include "local/reason.h"

namespace byteps::board {

constexpr uint32_t kMagic = 0x44524F42;  // "BORD"
constexpr uint32_t kMaxTensors = uint32_t{1} << 20;
constexpr uint32_t kMaxRanks = 4096;

// Where a contribution or a result lies.
struct Location {
  enum Kind : uint32_t { nowhere, arena, plain };
  uint64_t at;  // arena: an offset in that rank's arena; plain: an address in that rank's process
  Kind kind;
};

// One rank's part of the open round, written by that rank before it arrives.
struct alignas(64) Entry {
  Location src, dst;
  uint16_t flags;                    // kFlagAverage, kFlagBroadcast
  uint16_t root;                     // local rank of a broadcast's root; kElsewhere: on another machine
  std::atomic<uint32_t> arrivals;    // rounds this rank has contributed to
  std::atomic<uint32_t> wants_bell;  // ring when the round is over: another operation waits behind it

  static constexpr uint16_t kElsewhere = 0xFFFF;
};
static_assert(sizeof(Entry) == 64);

struct alignas(64) Slot {
  std::atomic<uint64_t> work;       // see slot.h
  std::atomic<uint32_t> arrived;    // ranks, in the open round
  std::atomic<uint32_t> finished;   // parts of the open round
  std::atomic<uint32_t> dropped;    // parts of the open round that nobody will finish
  std::atomic<uint32_t> done;       // rounds that are over
  std::atomic<uint32_t> failed;     // the last round that failed, + 1
  std::atomic<uint32_t> closer;     // local rank + 1 of the first that gave up
  std::atomic<uint32_t> explained;  // `close_reason` may be read
  EventCount changed;
  std::atomic<uint32_t> spinners;   // ranks that look at it without sleeping
  alignas(64) Reason round_reason;  // why that round failed
  alignas(64) Reason close_reason;  // why the slot was closed
};

struct alignas(64) Bell {
  EventCount rung;
};

struct alignas(64) Head {
  uint32_t magic;
  uint32_t ranks;
};

inline size_t slot_stride(uint32_t ranks) { return sizeof(Slot) + ranks * sizeof(Entry); }
inline size_t slots_offset(uint32_t ranks) {
  return (sizeof(Head) + ranks * sizeof(Bell) + 4095) / 4096 * 4096;
}
inline size_t bytes_for(uint32_t ranks) {
  return slots_offset(ranks) + size_t{kMaxTensors} * slot_stride(ranks);
}

}  // namespace byteps::board
