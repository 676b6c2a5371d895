// Bytes of one child's contributions whose rounds are open, by priority, and which of them were overtaken.
// Pure.
//
// What is less urgent than a later push was overtaken: the other children will push the urgent first, too, so
// its round stays open until all of that is through.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace byteps {

class OpenBytes {
 public:
  // A contribution has arrived. Returns how many bytes it has overtaken, each byte once.
  uint64_t open(int32_t priority, uint64_t bytes) {
    uint64_t overtaken = 0;
    Entry* own = nullptr;
    for (Entry& entry : entries_) {
      if (entry.priority == priority) own = &entry;
      if (entry.priority >= priority) continue;
      overtaken += entry.ahead;
      entry.overtaken += entry.ahead;
      entry.ahead = 0;
    }
    if (own) {
      own->ahead += bytes;
    } else {
      entries_.push_back({priority, bytes, 0});
    }
    return overtaken;
  }

  // The round of a contribution is over. Returns how many of its bytes had not been overtaken. Bytes that
  // were overtaken arrived first, so their rounds are taken to end first. A child that has connected again
  // may close more bytes than it has opened since.
  uint64_t close(int32_t priority, uint64_t bytes) {
    const auto at = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& entry) { return entry.priority == priority; });
    if (at == entries_.end()) return bytes;
    const uint64_t known = std::min(at->overtaken, bytes);
    at->overtaken -= known;
    at->ahead -= std::min(at->ahead, bytes - known);
    if (at->overtaken + at->ahead == 0) {
      *at = entries_.back();
      entries_.pop_back();
    }
    return bytes - known;
  }

 private:
  struct Entry {
    int32_t priority;
    uint64_t ahead, overtaken;
  };
  std::vector<Entry> entries_;  // few: one for each tensor that is in flight
};

}  // namespace byteps
