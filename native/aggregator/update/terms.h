// What a round is to become, and of how many contributions.
#pragma once

#include <cstdint>

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

inline Terms terms_of(const Header& header) {
  const bool broadcast = (header.flags & kFlagBroadcast) != 0;
  return {.average = (header.flags & kFlagAverage) != 0,
          .broadcast = broadcast,
          .root = broadcast ? header.detail : 0,
          .step = header.codec != 0 ? CodecTerms::of(header.received).step : 0};
}

// A child's contribution may be the sum of several ranks: averages are over ranks.
struct Counts {
  uint16_t children;
  uint16_t ranks;
};

}  // namespace byteps
