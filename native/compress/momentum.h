// Nesterov momentum, which a worker applies before error feedback and compression.
//
//   m = mu * m + g
//   g = g + mu * m
//
// mu is the optimizer's own momentum, which the plugin takes out of the optimizer; weight decay is added to g
// before. m is the caller's, zero at the start and part of the training state. In place, one walk.
#pragma once

#include <cstddef>

#include "compress/kernels.h"

namespace byteps::compress {

inline void nesterov(float* m, float* g, float mu, size_t n, const Kernels& kernels = best_kernels()) {
  kernels.nesterov(m, g, mu, n);
}

}  // namespace byteps::compress
