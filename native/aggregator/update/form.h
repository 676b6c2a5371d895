// What contributions to a key look like, and whether a PUSH does. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "aggregator/tensor/key_info.h"
#include "aggregator/update/terms.h"
#include "wire/limits.h"

namespace byteps {

// What a rule says of all contributions to its key. A broadcast is never wide and never compressed.
struct Form {
  bool may_be_wide = false;  // float32 elements: a machine's sum in a half type, which is not rounded yet
  uint8_t codec = 0;         // 0: they are not compressed
  size_t most_bytes = limits::kMaxPushBytes;  // of a compressed one, as far as the rule knows
};

// What a PUSH brings.
struct Shape {
  uint32_t bytes = 0;  // over the socket or by address
  bool wide = false;
  bool compressed = false;
};

struct Sender {
  uint16_t child;
  const std::string& name;  // for people
};

// Whatever the round: what a worker of ours would not send is refused before it costs memory. Throws
// WireError, which says what is wrong with it.
Shape shape_of(const Header& header, const KeyInfo& key, const Form& form, const Sender& sender,
               uint16_t children);

}  // namespace byteps
