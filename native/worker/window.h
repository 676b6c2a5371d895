// How many bytes of contributions may be in flight to servers before more are held back.
//
// BYTEPS_SCHEDULING_CREDIT is the most, for each link. But what is in flight beyond what the network can
// carry only waits in queues, and lets workers drift apart: a server can answer a piece when it has come from
// all of them, so a round ends later by as much as they differ. Therefore the window to other machines
// follows the network: it holds what was carried lately in kWindowHoldNs, and never less than one piece for
// each link and two more that are answered meanwhile. Not two for each link: what all workers send to one
// server meets in the queue in front of it, and what does not fit there is lost and sent again. Pure: the
// clock is the caller's.
//
// Only time in which something is in flight is counted. The best of the last ones counts, so that a pause of
// another worker does not make the window small.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/tuning.h"

namespace byteps {

class Window {
 public:
  // `most_bytes` 0: no limit. `fixed`: the link is this machine's memory, there is nothing to follow.
  Window(uint64_t most_bytes, bool fixed) : most_bytes_(most_bytes), fixed_(fixed || most_bytes == 0) {
    bytes_ = fixed_ ? most_bytes_ : std::min(most_bytes_, tuning::kFirstWindowBytes);
  }

  // One link more, which may have so much in flight. 0: no limit, for all of them.
  void grow(uint64_t most_bytes) {
    most_bytes_ += most_bytes;
    fixed_ = most_bytes == 0;
    bytes_ = std::min(most_bytes_, ++links_ * tuning::kFirstWindowBytes);
  }

  bool limited() const { return most_bytes_ > 0; }
  uint64_t bytes() const { return bytes_; }
  uint64_t under_way() const { return sent_bytes_ - received_bytes_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  uint64_t received_bytes() const { return received_bytes_; }
  // The first piece always may: else one that is larger than the window never could.
  bool admits(uint64_t bytes) const {
    return !limited() || under_way() == 0 || under_way() + bytes <= bytes_;
  }

  void sent(uint64_t bytes, int64_t now_ns) {
    if (under_way() == 0) busy_since_ns_ = now_ns;
    sent_bytes_ += bytes;
    largest_bytes_ = std::max(largest_bytes_, bytes);
  }

  // So many bytes that were in flight are void: their connection is gone.
  void lost(uint64_t bytes) { sent_bytes_ -= bytes; }

  // The server is done with this many bytes of all that was sent; `rtt_ns` is asked for when a sample is due.
  template <typename RoundTrip>
  void received(uint64_t total_bytes, int64_t now_ns, RoundTrip&& rtt_ns) {
    sample_bytes_ += total_bytes - received_bytes_;
    received_bytes_ = total_bytes;
    sample_ns_ += now_ns - std::exchange(busy_since_ns_, now_ns);
    if (fixed_ || sample_ns_ < tuning::kWindowSampleNs) return;
    samples_[at_++ % samples_.size()] = static_cast<double>(sample_bytes_) / static_cast<double>(sample_ns_);
    sample_bytes_ = 0;
    sample_ns_ = 0;
    const double best = *std::max_element(samples_.begin(), samples_.end());  // bytes per nanosecond
    const auto carried =
        static_cast<uint64_t>(best * static_cast<double>(tuning::kWindowHoldNs + 2 * rtt_ns()));
    bytes_ = std::min(most_bytes_, std::max(carried, largest_bytes_ * (links_ + 2)));
  }

 private:
  uint64_t most_bytes_;
  bool fixed_;
  unsigned links_ = 0;
  uint64_t bytes_;
  uint64_t sent_bytes_ = 0;      // contributions given to the wire
  uint64_t received_bytes_ = 0;  // of that, what the server has consumed
  uint64_t largest_bytes_ = 0;
  std::array<double, 8> samples_{};
  size_t at_ = 0;
  uint64_t sample_bytes_ = 0;  // of the sample that is being taken: what was consumed,
  int64_t sample_ns_ = 0;      // and how long something was in flight
  int64_t busy_since_ns_ = 0;
};

}  // namespace byteps
