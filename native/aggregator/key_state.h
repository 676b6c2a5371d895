// Everything a shard knows of one key: the piece of a tensor that all children contribute to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/key_codec.h"
#include "aggregator/key_round.h"
#include "aggregator/tensor_table.h"
#include "base/buffer.h"
#include "wire/header.h"

namespace byteps {

// What all contributions to one round must agree on.
struct Terms {
  bool average = false;
  bool broadcast = false;
  uint32_t root = 0;  // a child
  uint32_t step = 0;  // of a codec
  bool operator==(const Terms&) const = default;
};

// How a child's contribution came in the open round: what answers it goes back the same way.
struct Way {
  uint16_t rank = 0;        // through whose connection
  bool by_address = false;  // the result may be, too
  uint32_t bytes = 0;       // of contribution that came over it
  int32_t priority = 0;     // that it had
};

// A contribution that waits for its turn. `wide`: float32 elements of a tensor of a half type.
struct Held {
  BufferRef bytes;
  bool wide = false;
  uint32_t size = 0;   // of `bytes`
  CodecTerms terms{};  // what a compressed one said besides
};

// Why the open round gives nobody a result. That there is one says so, whatever its text: that may be a
// peer's.
struct RoundFailure {
  FailureKind kind;
  std::string text;
  bool told = false;
};

struct KeyState {
  KeyState(uint64_t key, std::shared_ptr<const TensorInfo> tensor, uint16_t children, bool rank_order);

  const uint64_t key;
  const std::shared_ptr<const TensorInfo> tensor;
  const uint32_t length;
  KeyRound round;
  Terms terms;
  std::vector<Way> ways;   // by child; says nothing of one that is missing
  std::vector<Held> held;  // by child; empty for a broadcast's other children
  BufferRef sum;           // of the children added so far; float32 for half types of three and more
  bool sum_is_wide = false;
  size_t kept_bytes = 0;  // of the open round: contributions held, and the sum
  BufferRef result;       // of the round before; in asynchronous mode the stored value
  uint32_t result_round = 0;
  std::unique_ptr<KeyCodec> codec;  // made when the first compressed contribution comes
  uint32_t result_bytes = 0;        // of a result that is compressed, else 0
  std::optional<RoundFailure> failure;
  // Asynchronous mode, by child: how many of its rounds have been taken, and whether it waits for the first
  // value.
  struct Taken {
    struct Waits {
      uint16_t rank;
      uint32_t round;
    };
    uint32_t rounds = 0;
    std::optional<Waits> waits{};
  };
  std::vector<Taken> taken;
  int64_t opened_ns = 0;
  bool asks = false;  // a child on another machine has contributed: the others are asked for theirs
  bool stall_told = false;

  // Of the open round. A broadcast is never compressed.
  bool coded() const { return tensor->codec && !terms.broadcast; }
  size_t sum_bytes() const { return !sum ? 0 : sum_is_wide ? 2 * size_t{length} : length; }
  // One contribution of an open round is always kept: it becomes the sum. These are kept besides.
  size_t extra_bytes(size_t kept) const {
    const size_t one = coded() ? 0 : length;
    return kept > one ? kept - one : 0;
  }
};

// For people.
std::string describe(const KeyState& key, uint32_t round);

// The header of a frame that answers a contribution to this key.
Header answer(FrameType type, const KeyState& key, uint32_t round, int32_t priority);

}  // namespace byteps
