// What the core tells Python: bounded, thread-safe, readable through an eventfd.
//
// Native threads post; the control thread of the process (an asyncio loop) watches fileno() and drains.
// When Python is too slow, log lines are dropped and counted rather than kept: a verbose log must never
// hold up the data path. Events that decide something ("lost", "violation") are always kept.
#pragma once

#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace byteps {

enum LogLevel : int { kTrace = 5, kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

struct Event {
  std::string kind;  // "log", "lost", "violation", "exhausted", "gone"
  int number;        // log: level; otherwise the peer
  std::string text;
};

class EventQueue {
 public:
  int fileno() const { return wake_.get(); }

  void log(LogLevel level, std::string_view text) noexcept { post("log", level, text); }

  // `kind` is a literal. Never fails: who has no memory to say why is still heard.
  void post(const char* kind, int number, std::string_view text) noexcept {
    std::lock_guard lock(mutex_);
    const bool is_log = std::string_view(kind) == "log";
    if (is_log && events_.size() >= kCapacity) {
      ++dropped_;
      return;
    }
    if (events_.empty()) wake_.signal();
    try {
      events_.push_back({kind, number, std::string(text)});
    } catch (const std::bad_alloc&) {
      if (is_log) {
        ++dropped_;
      } else if (!speechless_kind_) {
        speechless_kind_ = kind;
        speechless_number_ = number;
      }
    }
  }

  std::vector<Event> drain() {
    std::lock_guard lock(mutex_);
    std::vector<Event> out(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
    wake_.drain();
    events_.clear();
    if (speechless_kind_) {
      out.push_back({speechless_kind_, speechless_number_, "this process has no memory to say more"});
      speechless_kind_ = nullptr;
    }
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
  const char* speechless_kind_ = nullptr;  // the first event that could not be kept
  int speechless_number_ = 0;
  WakeFd wake_;
};

}  // namespace byteps
