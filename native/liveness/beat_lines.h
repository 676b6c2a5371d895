// When one member tells another one that it is alive, and over which of their connections. Pure.
//
// Theory. A beat that the network loses waits for TCP to send it again, and TCP tries less and less often:
// after a link was away for 6.3 s, the next try may be 6.3 s later. Whoever waits for the beat cannot tell
// that from a dead member. So two members have two connections for their beats (*lines*), and
//
// 1. a line gets a beat only when its last one was acknowledged: a lost beat has no others behind it;
// 2. while the last beat is not acknowledged, the other line stays clean until the last moment at which a
//    beat is still in time. What is sent over a clean line arrives at once, if the link is back.
//
// In health the lines take turns, so that nothing on the way forgets one of them.
//
// The other end has heard of us at the earliest when the last acknowledged beat was sent, and gives up
// `limit` after it has heard of us. A link that goes away does so at most one interval after a beat that
// arrived, or two if the acknowledgement of that one was lost. So with limit = time-out + interval, any
// outage shorter than time-out - interval - margin is over before the last moment, and harmless.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace byteps {

struct BeatTimes {
  int64_t interval_ns, timeout_ns;

  // Silence after which the other end is given up. The last beat may have come an interval before the end.
  int64_t limit_ns() const { return timeout_ns + interval_ns; }
  // What a beat in the last moment has for its way, and for threads that come late.
  int64_t margin_ns() const { return std::max(interval_ns / 4, timeout_ns / 20); }
};

class BeatLines {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  BeatLines(BeatTimes times, int64_t now) : times_(times), reached_ns_(now) {}

  size_t add_line() {
    lines_.push_back({});
    return lines_.size() - 1;
  }
  size_t size() const { return lines_.size(); }
  bool outstanding(size_t line) const { return lines_[line].outstanding; }

  // The beat on this line was acknowledged.
  void acknowledged(size_t line) {
    lines_[line].outstanding = false;
    reached_ns_ = std::max(reached_ns_, lines_[line].sent_ns);
    confirmed_ = true;
  }

  // The line for a beat, if one is due. To be asked every interval, and at last_moment_ns().
  std::optional<size_t> next(int64_t now) {
    if (!confirmed_ && now < last_moment_ns()) return {};
    std::optional<size_t> found;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (!lines_[i].outstanding && (!found || lines_[i].sent_ns < lines_[*found].sent_ns)) found = i;
    }
    if (!found) return {};
    lines_[*found] = {true, now};
    confirmed_ = false;
    return found;
  }

  // When the line that was kept clean has to be used; kNever: not before the next interval, or there is none.
  int64_t last_moment_ns() const {
    const bool has_clean = std::any_of(lines_.begin(), lines_.end(), [](auto& l) { return !l.outstanding; });
    return confirmed_ || !has_clean ? kNever : reached_ns_ + times_.limit_ns() - times_.margin_ns();
  }

 private:
  struct Line {
    bool outstanding = false;  // it has a beat that is not acknowledged
    int64_t sent_ns = INT64_MIN;
  };

  const BeatTimes times_;
  std::vector<Line> lines_;
  int64_t reached_ns_;     // the last acknowledged beat was sent then
  bool confirmed_ = true;  // an acknowledgement has come since the last beat: the network is there
};

}  // namespace byteps
