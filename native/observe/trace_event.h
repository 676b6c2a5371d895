// What happened to a piece of a tensor, or to a whole one, and when: an entry of the rings (ring.h).
//
//   process   stage     when, and what its fields mean beside tensor, piece and round
//   worker    step      a step ends (whole; round: its number)
//   worker    ready     the operation was asked for (whole; bytes: of the tensor)
//   worker    queued    its pieces of one link are in the order of what is sent (whole; peer: the server)
//   worker    encoded   a piece is compressed (took: so long; bytes: what it is now)
//   worker    sent      a piece was given to the wire (peer: the server; bytes)
//   worker    credit    the server is done with more of what was sent (whole; peer: the server;
//                       bytes: in flight)
//   server    arrived   a contribution is here, all of it (peer: the rank; bytes)
//   server    summed    the result of a round is made (bytes)
//   server    answered  a result was given to the wire (peer: the rank; bytes)
//   worker    landed    a result is here, all of it (peer: the server; bytes)
//   worker    decoded   a compressed result is elements again (took: so long)
//   worker    done      the operation is over (whole; note: 1 if it failed)
//   worker    needed    somebody begins to wait for it (whole)
//   worker    had       and waits no longer (whole; took: so long)
//
// Without servers, the rank that completes a round on the board records its own arrival and the sum.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace byteps {

enum class Stage : uint8_t {
  none,
  step,
  ready,
  queued,
  encoded,
  sent,
  credit,
  arrived,
  summed,
  answered,
  landed,
  decoded,
  done,
  needed,
  had,
};

constexpr const char* kStageNames[] = {"none",   "step",    "ready",   "queued", "encoded",
                                       "sent",   "credit",  "arrived", "summed", "answered",
                                       "landed", "decoded", "done",    "needed", "had"};

// A key that stands for the whole tensor; those of pieces are the wire's.
constexpr uint32_t kWholeTensor = UINT32_MAX;
constexpr uint64_t whole_key(uint32_t tensor) { return uint64_t{tensor} << 32 | kWholeTensor; }

struct TraceEvent {
  static constexpr uint16_t kNobody = UINT16_MAX;

  Stage stage = Stage::none;
  uint8_t note = 0;
  uint16_t peer = kNobody;
  uint32_t round = 0;
  uint64_t key = whole_key(0);  // tensor << 32 | piece
  int64_t at_ns = 0;            // by the clock that the writer was given
  uint32_t bytes = 0;
  uint32_t took_ns = 0;  // it ended at at_ns, and took so long
};
static_assert(sizeof(TraceEvent) == 32, "an event is half a cache line");

// For bytes and took_ns.
constexpr uint32_t saturated(uint64_t value) {
  return value > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(value);
}

}  // namespace byteps
