// Nesterov momentum, which a rank applies to its own gradient, before anything is summed or compressed.
//
//   m = mu * m + g
//   g = g + mu * m
//
// mu is the optimizer's own momentum, which the plugin takes out of the optimizer; weight decay is added to g
// before. m is zero at the start and part of the training state. It is a rank's and not a machine's, so that
// there is one rule for tensors of every size, with and without servers: momentum is linear, and the sum of
// the ranks' momenta is the momentum of their sum. It takes the place of the optimizer's buffer, byte for
// byte.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "compress/kernels.h"
#include "reduce/dtype.h"

namespace byteps::compress {

inline void nesterov(float* m, float* g, float mu, size_t n, const Kernels& kernels = best_kernels()) {
  kernels.nesterov(m, g, mu, n);
}

// Of one tensor. float64 has a float64 state, everything else float32; half types are rounded once, at the
// end.
class Momentum {
 public:
  Momentum(DType dtype, size_t elements);

  // dst = src + mu * m; they may be the same. Any thread, one after the other.
  void apply(const std::byte* src, std::byte* dst, double mu);

  // Not while apply() runs.
  std::byte* state() { return state_.data(); }
  size_t state_bytes() const { return state_.size(); }

 private:
  const DType dtype_;
  const size_t elements_;
  std::mutex mutex_;
  std::vector<std::byte> state_;
};

}  // namespace byteps::compress
