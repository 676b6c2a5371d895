// Walking through a partition in blocks that stay in the first-level cache between the steps done to them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "compress/kernels.h"

namespace byteps::compress {

// step(begin, count) for each block in turn; all but the last have kWalk elements.
template <class Step>
void walk(size_t elements, Step&& step) {
  for (size_t begin = 0; begin < elements; begin += kWalk) step(begin, std::min(kWalk, elements - begin));
}

}  // namespace byteps::compress
