// The rounds of one tensor on the board: who has come, what is left to do, and the end. No memory is moved
// here.
//
//   arrive ─▶ (the last one) open ─▶ claim ─▶ finish ... (the last one) complete ─▶ the next round
//                  └──────────── close: somebody gives up; nothing is claimed any more ────────────┘
//
// `work` is one word, so that opening, claiming and closing exclude each other:
//
//   bits 63..32  round
//   bit  31      closed, for good
//   bits 30..0   0: not open; n + 1: open, n parts claimed
//
// Whoever has claimed a part may touch the memory of all ranks until it has finished it. A rank that gives up
// may therefore let go of its memory when the slot is closed and as many parts are finished as were claimed.
#pragma once

#include "base/spin.h"
#include "local/board.h"

namespace byteps {

class SlotView {
 public:
  SlotView() = default;
  SlotView(std::byte* board, uint32_t ranks, uint32_t tensor)
      : slot_(reinterpret_cast<board::Slot*>(board + board::slots_offset(ranks) +
                                             tensor * board::slot_stride(ranks))),
        ranks_(ranks) {}

  uint32_t ranks() const { return ranks_; }
  board::Entry& entry(uint32_t rank) const { return reinterpret_cast<board::Entry*>(slot_ + 1)[rank]; }
  EventCount& changed() const { return slot_->changed; }
  // Something has changed. True if some rank waits for that, asleep or not.
  bool notify() const {
    return slot_->changed.notify() || slot_->spinners.load(std::memory_order_seq_cst) > 0;
  }
  // Looks for news for so long; true: there are some.
  template <class News>
  bool spin(int64_t most_ns, News news) const {
    slot_->spinners.fetch_add(1, std::memory_order_seq_cst);
    const bool came = spin_until(most_ns, news);
    slot_->spinners.fetch_sub(1, std::memory_order_relaxed);
    return came;
  }

  // This rank's entry is written. True for the last one: it then opens the round, or ends it with a failure.
  bool arrive(uint32_t rank) const {
    entry(rank).arrivals.fetch_add(1, std::memory_order_relaxed);
    return slot_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_;
  }
  bool has_arrived(uint32_t rank, uint32_t round) const {
    return static_cast<int32_t>(entry(rank).arrivals.load(std::memory_order_acquire) - round) > 0;
  }
  // False: the slot is closed.
  bool open(uint32_t round) const {
    slot_->finished.store(0, std::memory_order_relaxed);
    slot_->dropped.store(0, std::memory_order_relaxed);
    uint64_t expected = word(round, 0);
    return slot_->work.compare_exchange_strong(expected, word(round, 1), std::memory_order_acq_rel);
  }
  // Open, and with parts left to claim.
  bool claimable(uint32_t round, uint32_t parts) const {
    const uint64_t now = slot_->work.load(std::memory_order_acquire);
    return round_of(now) == round && !is_closed(now) && state_of(now) >= 1 && state_of(now) <= parts;
  }
  bool is_open(uint32_t round) const {
    const uint64_t now = slot_->work.load(std::memory_order_acquire);
    return round_of(now) == round && !is_closed(now) && state_of(now) >= 1;
  }
  // The number of a part to do, or -1.
  int64_t claim(uint32_t round, uint32_t parts) const {
    uint64_t now = slot_->work.load(std::memory_order_acquire);
    while (round_of(now) == round && !is_closed(now) && state_of(now) >= 1 && state_of(now) <= parts) {
      if (slot_->work.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel))
        return state_of(now) - 1;
    }
    return -1;
  }
  // True for the last part: the caller then completes the round.
  bool finish(uint32_t parts) const {
    const bool last = slot_->finished.fetch_add(1, std::memory_order_acq_rel) + 1 == parts;
    if (closed()) slot_->changed.notify();  // who gave up waits for us
    return last;
  }
  // It cannot be finished, and so the round never ends by itself; but nobody works on the part any more.
  void drop() const {
    slot_->dropped.fetch_add(1, std::memory_order_acq_rel);
    if (closed()) slot_->changed.notify();
  }
  // Ends the round; false if the slot was closed before. Wakes who waits, and tells whose bell to ring.
  template <typename Ring>
  bool complete(uint32_t round, Ring&& ring) const {
    uint64_t now = slot_->work.load(std::memory_order_acquire);
    do {
      if (round_of(now) != round || is_closed(now)) return false;
      slot_->arrived.store(0, std::memory_order_relaxed);
    } while (!slot_->work.compare_exchange_weak(now, word(round + 1, 0), std::memory_order_acq_rel));
    slot_->done.store(round + 1, std::memory_order_seq_cst);
    slot_->changed.notify();
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      if (entry(rank).wants_bell.load(std::memory_order_seq_cst)) ring(rank);
    }
    return true;
  }
  bool over(uint32_t round) const {
    return static_cast<int32_t>(slot_->done.load(std::memory_order_seq_cst) - round) > 0;
  }

  // Nothing will be claimed or completed any more. The first reason counts.
  void close(uint32_t rank, const Failure& why) const {
    uint32_t nobody = 0;
    const bool first = slot_->closer.compare_exchange_strong(nobody, rank + 1, std::memory_order_acq_rel);
    if (first) {
      slot_->close_reason.set(why);
      slot_->explained.store(1, std::memory_order_release);
    }
    slot_->work.fetch_or(kClosed, std::memory_order_acq_rel);
    slot_->changed.notify();
  }
  bool closed() const { return is_closed(slot_->work.load(std::memory_order_acquire)); }
  // Of a closed slot: nobody touches the memory of others any more.
  bool drained() const {
    const uint64_t now = slot_->work.load(std::memory_order_acquire);
    const uint32_t claimed = state_of(now) == 0 ? 0 : state_of(now) - 1;
    return slot_->finished.load(std::memory_order_acquire) + slot_->dropped.load(std::memory_order_acquire) >=
           claimed;
  }
  // Local rank of the first that closed it, or -1.
  int closer() const { return static_cast<int>(slot_->closer.load(std::memory_order_acquire)) - 1; }
  // Null until the one that closed it has written why.
  const board::Reason* close_reason() const {
    return slot_->explained.load(std::memory_order_acquire) ? &slot_->close_reason : nullptr;
  }

  // The open round ends without a result for anybody, when it ends. The first reason counts. Only for whoever
  // opens the round, or has a part of it still to finish.
  void fail(uint32_t round, const Failure& why) const {
    uint32_t before = slot_->failed.load(std::memory_order_acquire);
    if (before == round + 1) return;
    if (slot_->failed.compare_exchange_strong(before, round + 1, std::memory_order_acq_rel)) {
      slot_->round_reason.set(why);
    }
  }
  bool failed(uint32_t round) const { return slot_->failed.load(std::memory_order_acquire) == round + 1; }
  // Of a round that is over, or that this rank may open.
  const board::Reason& round_reason() const { return slot_->round_reason; }

 private:
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static uint64_t word(uint32_t round, uint32_t state) { return uint64_t{round} << 32 | state; }
  static uint32_t round_of(uint64_t work) { return static_cast<uint32_t>(work >> 32); }
  static bool is_closed(uint64_t work) { return (work & kClosed) != 0; }
  static uint32_t state_of(uint64_t work) { return static_cast<uint32_t>(work & (kClosed - 1)); }

  board::Slot* slot_ = nullptr;
  uint32_t ranks_ = 0;
};

}  // namespace byteps
