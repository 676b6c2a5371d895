// The generic kernels, and the choice of the best ones for this processor.
#include "reduce/sum.h"

#include "reduce/avx2.h"
#include "reduce/loops.h"

namespace byteps {

namespace {

template <class E>
struct Generic {
  static constexpr Kernels kernels() {
    return {add, average, add_average, nullptr, nullptr, nullptr, nullptr};
  }
  static void add(void* acc, const void* src, size_t n) { loops::add<E>(acc, src, n); }
  static void average(void* data, size_t n, uint32_t divisor) { loops::average<E>(data, n, divisor); }
  static void add_average(void* acc, const void* src, size_t n, uint32_t divisor) {
    loops::add_average<E>(acc, src, n, divisor);
  }
};

template <class E>
struct GenericHalf : Generic<E> {
  using Base = Generic<E>;
  static constexpr Kernels kernels() {
    return {Base::add, Base::average, Base::add_average, widen, add_widened, narrow, narrow_average};
  }
  static void widen(float* acc, const void* src, size_t n) { loops::widen<E>(acc, src, n); }
  static void add_widened(float* acc, const void* src, size_t n) { loops::add_widened<E>(acc, src, n); }
  static void narrow(void* dst, const float* acc, size_t n) { loops::narrow<E>(dst, acc, n); }
  static void narrow_average(void* dst, const float* acc, size_t n, uint32_t divisor) {
    loops::narrow_average<E>(dst, acc, n, divisor);
  }
};

constexpr KernelSet kGeneric = {"generic", loops::table<Generic>(GenericHalf<loops::Float16>::kernels(),
                                                                 GenericHalf<loops::BFloat16>::kernels())};

}  // namespace

const KernelSet& generic_kernels() { return kGeneric; }

const KernelSet& best_kernels() {
  static const KernelSet* const best = [] {
    const KernelSet* avx2 = avx2_kernels();
    return avx2 != nullptr ? avx2 : &kGeneric;
  }();
  return *best;
}

void add(DType dtype, void* acc, const void* src, size_t n) { best_kernels()[dtype].add(acc, src, n); }

void average(DType dtype, void* data, size_t n, uint32_t divisor) {
  best_kernels()[dtype].average(data, n, divisor);
}

void add_average(DType dtype, void* acc, const void* src, size_t n, uint32_t divisor) {
  best_kernels()[dtype].add_average(acc, src, n, divisor);
}

void widen(DType half, float* acc, const void* src, size_t n) { best_kernels()[half].widen(acc, src, n); }

void add_widened(DType half, float* acc, const void* src, size_t n) {
  best_kernels()[half].add_widened(acc, src, n);
}

void narrow(DType half, void* dst, const float* acc, size_t n) { best_kernels()[half].narrow(dst, acc, n); }

void narrow_average(DType half, void* dst, const float* acc, size_t n, uint32_t divisor) {
  best_kernels()[half].narrow_average(dst, acc, n, divisor);
}

}  // namespace byteps
