// What all links of a worker to other machines may have in flight together, and who is next.
//
// Servers hold different shares of the bytes (scheduler/shares.py), but TCP gives every connection the same
// part of a link. Left alone, the small shares would be through early and the large ones late, and the links
// of the large ones idle at first. So pieces leave in one order over all connections, that of priority,
// submission and how far each connection is with its own, and no further ahead of the oldest that is under
// way than the network can use: each connection then gets the part that its share of the bytes needs, and all
// are through at the same time.
//
// Thread-safe. A link that is refused is told to ask again (`nudge`) when it is its turn.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "worker/shared_budget.h"
#include "worker/window.h"

namespace byteps {

class Budget final : public SharedBudget {
 public:
  // Before use. `most_bytes` is what one link may have in flight.
  void add_link(uint64_t most_bytes) { window_.grow(most_bytes); }

  bool admit(Sender& sender, const Place& place, uint64_t bytes, int64_t now_ns) override {
    Sender* next = nullptr;
    {
      std::lock_guard lock(mutex_);
      const auto own = find(sender);
      const bool turn = std::all_of(waiting_.begin(), waiting_.end(), [&](const Waiting& other) {
        return other.sender == &sender || place.before(other.place);
      });
      if (!turn || !window_.admits(bytes)) {
        if (own == waiting_.end()) {
          waiting_.push_back({&sender, place, bytes});
        } else {
          *own = {&sender, place, bytes};
        }
        return false;
      }
      if (own != waiting_.end()) remove(own);
      window_.sent(bytes, now_ns);
      next = first_that_fits();
    }
    if (next) next->nudge();
    return true;
  }

  void pass(Sender& sender, uint64_t bytes, int64_t now_ns) override {
    std::lock_guard lock(mutex_);
    const auto own = find(sender);
    if (own != waiting_.end()) remove(own);
    window_.sent(bytes, now_ns);
  }

  void withdraw(Sender& sender) override {
    Sender* next = nullptr;
    {
      std::lock_guard lock(mutex_);
      const auto own = find(sender);
      if (own == waiting_.end()) return;
      remove(own);
      next = first_that_fits();
    }
    if (next) next->nudge();
  }

  void received(uint64_t bytes, int64_t now_ns, const RoundTrip& rtt_ns) override {
    Sender* next = nullptr;
    {
      std::lock_guard lock(mutex_);
      window_.received(window_.received_bytes() + bytes, now_ns, rtt_ns);
      next = first_that_fits();
    }
    if (next) next->nudge();
  }

  void lost(uint64_t bytes) override {
    Sender* next = nullptr;
    {
      std::lock_guard lock(mutex_);
      window_.lost(bytes);
      next = first_that_fits();
    }
    if (next) next->nudge();
  }

  // Twice the link's part of the window. A link that is slow for a while would otherwise fill all of it, and
  // what it holds waits in front of a server that needs the pieces of others first. Twice, because a link
  // whose answers take longer needs more in flight to keep up: held to its part it falls behind, its part
  // shrinks with it, and it ends last with the others idle. Never less than two pieces, so that one is sent
  // while the other is answered.
  uint64_t part(uint64_t link_sent_bytes, uint64_t piece_bytes) override {
    std::lock_guard lock(mutex_);
    const double share = static_cast<double>(link_sent_bytes) /
                         static_cast<double>(std::max<uint64_t>(1, window_.sent_bytes()));
    return std::max(2 * piece_bytes, static_cast<uint64_t>(2 * share * static_cast<double>(window_.bytes())));
  }

 private:
  struct Waiting {
    Sender* sender;
    Place place;
    uint64_t bytes;
  };
  using Iterator = std::vector<Waiting>::iterator;

  Iterator find(const Sender& sender) {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [&](const Waiting& w) { return w.sender == &sender; });
  }
  void remove(Iterator at) {
    *at = waiting_.back();
    waiting_.pop_back();
  }
  Sender* first_that_fits() {
    const auto first = std::min_element(waiting_.begin(), waiting_.end(),
                                        [](const auto& a, const auto& b) { return a.place.before(b.place); });
    return first != waiting_.end() && window_.admits(first->bytes) ? first->sender : nullptr;
  }

  std::mutex mutex_;
  Window window_{0, false};
  std::vector<Waiting> waiting_;
};

}  // namespace byteps
