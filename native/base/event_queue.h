// What the core tells Python: bounded, thread-safe, readable through an eventfd.
//
// Native threads post; the control thread of the process (an asyncio loop) watches fileno() and drains.
// When Python is too slow, log lines are dropped and counted rather than kept: a verbose log must never
// hold up the data path. Events that decide something ("lost", "violation") are always kept.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"

namespace byteps {

enum LogLevel : int { kTrace = 5, kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

struct Event {
  std::string kind;  // "log", "lost", "violation"
  int number;        // log: level; otherwise the peer
  std::string text;
};

class EventQueue {
 public:
  int fileno() const { return wake_.get(); }

  void log(LogLevel level, std::string text) { post({"log", level, std::move(text)}); }

  void post(Event event) {
    std::lock_guard lock(mutex_);
    if (event.kind == "log" && events_.size() >= kCapacity) {
      ++dropped_;
      return;
    }
    if (events_.empty()) wake_.signal();
    events_.push_back(std::move(event));
  }

  std::vector<Event> drain() {
    std::lock_guard lock(mutex_);
    wake_.drain();
    std::vector<Event> out(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
    events_.clear();
    if (dropped_ > 0) {
      out.push_back({"log", kWarning, std::to_string(dropped_) + " log lines dropped: too many at once"});
      dropped_ = 0;
    }
    return out;
  }

 private:
  static constexpr size_t kCapacity = 4096;
  std::mutex mutex_;
  std::deque<Event> events_;
  size_t dropped_ = 0;
  WakeFd wake_;
};

}  // namespace byteps
