// What the core tells Python: bounded, thread-safe, readable through an eventfd.
//
// Native threads post; the control thread of the process (an asyncio loop) watches fileno() and drains.
// When Python is too slow, log lines are dropped and counted rather than kept: a verbose log must never
// hold up the data path. Failures decide something and are always kept.
#pragma once

#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.h"
#include "base/fd.h"

namespace byteps {

enum LogLevel : int { kTrace = 5, kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

struct Event {
  enum class What : uint8_t { log, heard, failure };
  What what = What::log;
  FailureKind kind = FailureKind::none;  // of a failure
  Role role = Role::nobody;              // whom a failure is about
  int number = -1;                       // log: the level; otherwise the peer, -1: none
  std::string text{};
  uint32_t connection = 0;  // whose end it is, as its owner calls it; 0: it is not about one
};

class EventQueue {
 public:
  int fileno() const { return wake_.get(); }

  // None of these ever fails: a failure that there is no memory to describe is still told.
  void log(LogLevel level, std::string_view text) noexcept {
    post({Event::What::log, FailureKind::none, Role::nobody, level}, text);
  }
  void failed(FailureKind kind, Role role, int number, std::string_view text,
              uint32_t connection = 0) noexcept {
    Event event{Event::What::failure, kind, role, number};
    event.connection = connection;
    post(std::move(event), text);
  }
  void heard(int peer) noexcept { post({Event::What::heard, FailureKind::none, Role::nobody, peer}, {}); }

  std::vector<Event> drain() {
    std::lock_guard lock(mutex_);
    std::vector<Event> out(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
    wake_.drain();
    events_.clear();
    if (speechless_) {
      out.push_back(*speechless_);
      out.back().text = "this process has no memory to say more";
      speechless_.reset();
    }
    if (dropped_ > 0) {
      out.push_back({Event::What::log, FailureKind::none, Role::nobody, kWarning,
                     std::to_string(dropped_) + " log lines dropped: too many at once"});
      dropped_ = 0;
    }
    return out;
  }

 private:
  // `event` has no text yet, and so costs nothing to make.
  void post(Event event, std::string_view text) noexcept {
    std::lock_guard lock(mutex_);
    const bool is_log = event.what == Event::What::log;
    if (is_log && events_.size() >= kCapacity) {
      ++dropped_;
      return;
    }
    if (events_.empty()) wake_.signal();
    try {
      event.text = text;
      events_.push_back(std::move(event));
    } catch (const std::bad_alloc&) {
      if (is_log) {
        ++dropped_;
      } else if (!speechless_) {
        event.text.clear();
        speechless_.emplace(std::move(event));
      }
    }
  }

  static constexpr size_t kCapacity = 4096;
  std::mutex mutex_;
  std::deque<Event> events_;
  size_t dropped_ = 0;
  std::optional<Event> speechless_;  // the first event that could not be kept
  WakeFd wake_;
};

}  // namespace byteps
