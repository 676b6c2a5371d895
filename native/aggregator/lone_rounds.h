// The rounds of a key whose children do not wait for each other: how many of each child's have been taken,
// and who waits for the first value. Pure, as key_round.h is for rounds that all children make together.
//
// A child counts its own rounds, and sends the next one only when it has the answer to the one before. A
// round below the number of those taken has come before: its connection broke before the answer came.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace byteps {

class LoneRounds {
 public:
  // Who gets the first value when there is one, and as the answer to which of its rounds.
  struct Waiting {
    uint16_t rank;
    uint32_t round;
  };

  // Before anything else; once more is nothing. Not in a constructor: most keys need none of this.
  void make_room(uint16_t children) { children_.resize(children); }

  bool taken(uint16_t child, uint32_t round) const { return round < children_[child].taken; }
  void take(uint16_t child, uint32_t round) {
    children_[child].taken = std::max(children_[child].taken, round + 1);
  }
  // Takes it, too: it brings nothing that could be added later.
  void wait(uint16_t child, Waiting waiting) {
    take(child, waiting.round);
    children_[child].waiting = waiting;
  }

  // Each of those who wait, once: they wait no longer.
  template <class Answer>
  void release(Answer answer) {
    for (Child& child : children_) {
      if (!child.waiting) continue;
      answer(*child.waiting);
      child.waiting.reset();
    }
  }

 private:
  struct Child {
    uint32_t taken = 0;
    std::optional<Waiting> waiting{};
  };
  std::vector<Child> children_;
};

}  // namespace byteps
