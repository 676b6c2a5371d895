// The last events of every thread of this process, always there to be read.
//
// A thread writes into a ring of its own: no lock, no allocation, no text, four stores. Whoever reads copies,
// and never holds a writer up.
//
// Theory. `head_` is the number of events written; event i lies in slot i mod kEvents. Before the writer
// touches the slot of event i, it has said so: head_ == i since the event before. All stores into slots
// release, all loads from them acquire: a reader that sees a word of event i sees head_ >= i afterwards. So
// it copies, looks at head_ again, and keeps what cannot have been overwritten meanwhile: events after
// head_ - kEvents. What it keeps is whole, what it drops was too old.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "observe/trace_event.h"

namespace byteps {

class Ring {
 public:
  // Two megabytes, of which only what is written takes memory: about ten steps of a model of 100 MB.
  static constexpr uint64_t kEvents = 1 << 16;

  Ring();

  // The thread that owns it.
  void push(const TraceEvent& event) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    uint64_t* slot = slot_of(head);
    store(slot[0], static_cast<uint64_t>(event.at_ns));
    store(slot[1], event.key);
    store(slot[2], uint64_t{event.round} << 32 | event.bytes);
    store(slot[3], uint64_t{event.took_ns} << 32 | uint64_t{event.peer} << 16 |
                       uint64_t{static_cast<uint8_t>(event.stage)} << 8 | event.note);
    head_.store(head + 1, std::memory_order_release);
  }

  // Any thread. Appends the events since number `from`, and returns the number to go on from.
  uint64_t read(uint64_t from, std::vector<TraceEvent>& out) const;

 private:
  static constexpr size_t kWords = 4;  // of an event
  uint64_t* slot_of(uint64_t number) const { return words_.get() + number % kEvents * kWords; }
  static void store(uint64_t& word, uint64_t value) {
    std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
  }

  struct Free {
    void operator()(uint64_t* words) const { std::free(words); }
  };
  std::unique_ptr<uint64_t[], Free> words_;  // untouched until it is written: std::atomic would fill it
  std::atomic<uint64_t> head_{0};
};

// One ring as a reader sees it.
struct RingEvents {
  std::string thread;  // that writes into it now, or did last
  uint64_t next = 0;   // to read on from
  uint64_t lost = 0;   // overwritten before they were read
  std::vector<TraceEvent> events;
};

// All rings of this process. from[i] is where to read on in ring i; what is missing counts as 0.
std::vector<RingEvents> read_rings(const std::vector<uint64_t>& from);

namespace detail {
extern thread_local Ring* own_ring;
// Nothing if there is no memory for one: then this thread is not seen.
Ring* take_ring() noexcept;
}  // namespace detail

// This thread's events. The first one of a thread gets it a ring; one that has ended hands it on.
inline void record(const TraceEvent& event) noexcept {
  Ring* ring = detail::own_ring;
  if (!ring && !(ring = detail::take_ring())) return;
  ring->push(event);
}

// Something that takes a while: an event at its end.
class Timed {
 public:
  Timed(Clock clock, Stage stage, uint64_t key, uint32_t round)
      : clock_(clock), stage_(stage), key_(key), round_(round), begin_ns_(clock.now_ns()) {}
  ~Timed() {
    const int64_t now = clock_.now_ns();
    record({.stage = stage_,
            .round = round_,
            .key = key_,
            .at_ns = now,
            .took_ns = saturated(static_cast<uint64_t>(now - begin_ns_))});
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  const Clock clock_;
  const Stage stage_;
  const uint64_t key_;
  const uint32_t round_;
  const int64_t begin_ns_;
};

}  // namespace byteps
