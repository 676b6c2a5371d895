// Adds contributions to a key's sum, in buffers. The arithmetic of the aggregator, without its protocol.
#pragma once

#include "aggregator/key_state.h"

namespace byteps {

// A child's contribution may be the sum of several ranks: averages are over ranks.
struct Counts {
  uint16_t children;
  uint16_t ranks;
};

// Adds the held contribution of `child` and gives its buffer back. The first one is not copied: its buffer
// becomes the sum, unless it is compressed. Throws WireError if a compressed one does not decode.
void add_contribution(KeyState& key, uint16_t child, Counts counts, BufferPool& pool);

// All are added: makes the sum the result (average, and rounding of half types, once).
void finish_sum(KeyState& key, Counts counts, BufferPool& pool);

}  // namespace byteps
