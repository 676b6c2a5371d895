// The codec of a declared tensor: what workers and servers must know alike, and the streams it draws from.
#pragma once

#include <string_view>

#include "compress/codec.h"

namespace byteps::compress {

// The kinds of error feedback, by the same names as in src/byteps/compress/params.py.
enum class Feedback : uint8_t { none, vanilla, corrected, sparse };

struct DeclaredCodec {
  CodecSpec spec;  // spec.feedback says whether `feedback` is not none
  Feedback feedback = Feedback::none;
  uint64_t seed = 1;

  bool operator==(const DeclaredCodec&) const = default;

  // The factor of the old error: lr_previous / lr_now, where the kind of feedback asks for it. A learning
  // rate of 0 is one that nobody knows. They travel as float32, so that everybody divides the same numbers.
  float factor(float previous_lr, float lr) const {
    const bool corrects = feedback == Feedback::corrected || feedback == Feedback::sparse;
    if (!corrects || !(lr > 0) || !(previous_lr > 0)) return 1;
    return static_cast<float>(static_cast<double>(previous_lr) / static_cast<double>(lr));
  }
};

// FNV-1a, 64 bits: a number for a name, the same in every process and every run.
uint64_t name_hash(std::string_view name);

// The key of the random stream of a partition. By name, not by number: a job that goes on from a checkpoint
// may number its tensors differently. Sender 0 is the server, and everybody where all must draw alike
// (randomk); child i is sender i + 1, so that the rounding errors of different senders are independent.
uint64_t stream_key(std::string_view name, uint32_t partition, const CodecSpec& spec, uint32_t sender);

}  // namespace byteps::compress
