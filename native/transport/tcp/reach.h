// Whether the other end of a connection can still be reached, out of what the kernel tells of it. Pure.
//
// The kernel sends again what is not acknowledged, probes a closed window, and with keepalive probes an idle
// connection: it asks, and the other end's kernel answers, also for a process that reads nothing because it
// is slow or was stopped. So the connection is cut when questions stay without an answer for long. Two things
// that would be simpler do not tell. TCP_USER_TIMEOUT also ends a connection whose window stays closed,
// however promptly the probes are answered. And the time of the last segment that came in
// (tcpi_last_ack_recv) is recent where only our way to the other end is cut: it sends again and again what we
// cannot acknowledge.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace byteps {

struct Questions {
  unsigned unanswered = 0;   // since the last answer
  uint64_t acked_bytes = 0;  // so far
};

class Reach {
 public:
  // Silence shorter than `tolerated` is none: after that, the next question must have had its chance. The
  // kernel asks again after at most as long as it has asked already, and at most after `pause`. It knows
  // whole seconds only for keepalive.
  Reach(int64_t tolerated_ns, int64_t pause_ns)
      : limit_ns_(tolerated_ns + std::max(std::min(tolerated_ns, pause_ns), kNanosecondsPerSecond) +
                  kMarginNs) {}

  // To be told about once a second while something is wanted; how long nobody has answered, or 0 if that is
  // no reason to give up yet.
  int64_t cut_for_ns(int64_t now, Questions asked) {
    const bool answered = asked.unanswered < last_.unanswered || asked.acked_bytes != last_.acked_bytes;
    if (answered || last_.unanswered == 0) asking_since_ns_ = now;
    last_ = asked;
    const int64_t silent = now - asking_since_ns_;
    return asked.unanswered >= kFewest && silent >= limit_ns_ ? silent : 0;
  }

 private:
  static constexpr unsigned kFewest = 3;  // one or two packets get lost on a network that works
  static constexpr int64_t kMarginNs = kNanosecondsPerSecond / 2;

  const int64_t limit_ns_;
  Questions last_;
  int64_t asking_since_ns_ = 0;
};

}  // namespace byteps
