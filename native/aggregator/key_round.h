// One key's rounds: who has contributed, whose turn it is to be added, who asks for something already done.
// Pure: no memory, no sockets. The shard does what it says.
//
// A round collects one contribution from every child and is then closed; the next one is one higher. A child
// sends round r + 1 of a key only after it has the result of r, so at any time a contribution is for
//   the open round         -> accept it, once per child
//   the one before it      -> the child did not get the result (a lost connection): send it again
//   anything older         -> an echo of the past: ignore it
//   anything newer         -> a broken peer.
// Per child, within the open round:
//
//   absent ──hold──▶ held ──add──▶ added          (all added: complete, close)
//     │ ▲
//     │ └───────ask───────┐
//     └──drop──▶ dropped ─┘   came before its turn, and there was no room to keep it: asked for again later
//
// The next epoch may have other children. Then what the open round has collected is dropped; rounds go on
// counting.
//
// In rank order, child i is added only after child i - 1: the sum has the same bits whatever the order of
// arrival. Otherwise a child is added as soon as it is held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace byteps {

class KeyRound {
 public:
  enum class Part : uint8_t { absent, held, added, dropped };
  enum class Verdict { accept, duplicate, finished, past, ahead };

  KeyRound(uint16_t children, bool rank_order) : parts_(children, Part::absent), rank_order_(rank_order) {}

  // The next epoch has other children.
  void enter(uint16_t children) {
    parts_.assign(children, Part::absent);
    added_ = contributed_ = 0;
  }

  uint32_t round() const { return round_; }
  bool open() const { return contributed_ > 0; }
  bool complete() const { return added_ == parts_.size(); }
  bool missing(uint16_t child) const {
    return parts_[child] == Part::absent || parts_[child] == Part::dropped;
  }
  bool contributed(uint16_t child) const { return parts_[child] != Part::absent; }
  bool its_turn(uint16_t child) const { return !rank_order_ || child == added_; }

  Verdict offer(uint16_t child, uint32_t round) const {
    if (round == round_) return parts_[child] == Part::absent ? Verdict::accept : Verdict::duplicate;
    if (round == round_ - 1) return Verdict::finished;
    return static_cast<int32_t>(round - round_) < 0 ? Verdict::past : Verdict::ahead;
  }

  void hold(uint16_t child) {
    parts_[child] = Part::held;
    ++contributed_;
  }
  void drop(uint16_t child) {
    parts_[child] = Part::dropped;
    ++contributed_;
  }

  // The round has failed, and its bytes are not needed any more.
  void waive(uint16_t child) {
    if (parts_[child] == Part::dropped) parts_[child] = Part::held;
  }

  // The child to add now, or -1. Call add() for it.
  int next_to_add() const { return next_that_is(Part::held); }
  void add(uint16_t child) {
    parts_[child] = Part::added;
    ++added_;
  }

  // The child whose contribution was dropped and is needed now, or -1. Call ask() for it.
  int next_to_ask() const { return next_that_is(Part::dropped); }
  void ask(uint16_t child) {
    parts_[child] = Part::absent;
    --contributed_;
  }

  void close() {
    for (auto& part : parts_) part = Part::absent;
    added_ = contributed_ = 0;
    ++round_;
  }

 private:
  int next_that_is(Part part) const {
    if (rank_order_) return added_ < parts_.size() && parts_[added_] == part ? static_cast<int>(added_) : -1;
    const auto found = std::find(parts_.begin(), parts_.end(), part);
    return found == parts_.end() ? -1 : static_cast<int>(found - parts_.begin());
  }

  std::vector<Part> parts_;
  const bool rank_order_;
  uint32_t round_ = 0;
  uint32_t added_ = 0;
  uint32_t contributed_ = 0;
};

}  // namespace byteps
