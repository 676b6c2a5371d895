// What a server does with the contributions to one key: the contract of an update rule.
//
// A shard decides who may contribute, when, and who is answered; the rule decides what a contribution looks
// like, what adding one means, and what the answer is. It has no sockets, no clock and no other key. One rule
// belongs to one key and to the thread of its shard.
//
//   sum          all children contribute, all get the sum                      sum.h
//   compressed   the same, compressed on both ways; the error is kept here     compressed.h
//   stored       a contribution changes a value, and its sender gets that      stored.h
//
// A collective rule sees, for each round, add() for every child in the order of the shard, then finish(), or
// drop() instead of any of these if the round fails. The others see add() alone.
//
// What throws: WireError if a payload cannot be what it should be, std::bad_alloc if there is no memory. The
// result of the round before is then still there.
#pragma once

#include "aggregator/update/form.h"
#include "base/buffer.h"

namespace byteps {

struct Contribution {
  uint16_t child = 0;
  BufferRef bytes{};  // none for a broadcast's other children
  Shape shape{};
  CodecTerms terms{};  // what a compressed one says besides
};

// What a child gets.
struct Result {
  BufferRef bytes{};   // none: the child has them already
  uint32_t size = 0;   // of them
  uint8_t codec = 0;   // 0: they are the elements
  bool lasts = false;  // until all children have contributed once more: a child may read it by address
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  // Whether a round takes one contribution of every child, and ends for all of them together. If not, every
  // contribution is answered by itself.
  virtual bool is_collective() const = 0;
  virtual Form form() const = 0;
  // Takes the memory that adding needs besides the contribution itself, if that has not happened yet. True:
  // it has now, and form() may know more.
  virtual bool prepare(const Shape&, Counts) { return false; }

  virtual void add(Contribution contribution, const Terms& terms, Counts counts, BufferPool& pool) = 0;
  // Of collective rules: all are added, and what they became is the result from now on.
  virtual void finish(const Terms&, Counts, BufferPool&) {}
  // Of collective rules: forgets what was added since the last result.
  virtual void drop() {}
  // The next epoch has other children; no round is open.
  virtual void enter() {}

  // Of collective rules: how many bytes of contributions a round keeps in any case, because one of them
  // becomes the sum; and how many the sum has now.
  virtual size_t first_bytes(const Terms&) const { return 0; }
  virtual size_t sum_bytes() const { return 0; }

  // The answer to a contribution to the last round that has a result.
  virtual Result result_for(uint16_t child, const Terms& terms) const = 0;
  // The last result, null if there is none or it is compressed.
  virtual const std::byte* result_elements() const = 0;

 protected:
  explicit UpdateRule(const KeyInfo& key) : key_(key) {}
  const KeyInfo key_;
};

}  // namespace byteps
