#include "compress/momentum.h"

#include <cstring>

#include "compress/walk.h"
#include "reduce/sum.h"

namespace byteps::compress {

Momentum::Momentum(DType dtype, size_t elements)
    : dtype_(dtype),
      elements_(elements),
      state_(elements * (dtype == DType::f64 ? sizeof(double) : sizeof(float))) {}

void Momentum::apply(const std::byte* src, std::byte* dst, double mu) {
  std::lock_guard lock(mutex_);
  if (dtype_ == DType::f64) {
    auto* m = reinterpret_cast<double*>(state_.data());
    const auto* from = reinterpret_cast<const double*>(src);
    auto* to = reinterpret_cast<double*>(dst);
    for (size_t i = 0; i < elements_; ++i) {
      m[i] = mu * m[i] + from[i];
      to[i] = from[i] + mu * m[i];
    }
    return;
  }
  auto* m = reinterpret_cast<float*>(state_.data());
  const auto narrow_mu = static_cast<float>(mu);
  alignas(32) float wide[kWalk];
  walk(elements_, [&](size_t begin, size_t count) {
    const size_t at = begin * size_of(dtype_);
    if (dtype_ == DType::f32) {
      if (src != dst) std::memcpy(dst + at, src + at, count * sizeof(float));
      return nesterov(m + begin, reinterpret_cast<float*>(dst + at), narrow_mu, count);
    }
    widen(dtype_, wide, src + at, count);
    nesterov(m + begin, wide, narrow_mu, count);
    narrow(dtype_, dst + at, wide, count);
  });
}

}  // namespace byteps::compress
