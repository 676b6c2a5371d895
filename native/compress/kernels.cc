// The generic kernels, and the choice of the best ones for this processor.
#include "compress/kernels.h"

#include "compress/loops.h"

namespace byteps::compress {

namespace {

void feedback(const float* g, float a, float c, float* e, size_t n) { loops::feedback(g, a, c, e, n); }
void subtract(const float* x, float* e, size_t n) { loops::subtract(x, e, n); }
void nesterov(float* m, float* g, float mu, size_t n) { loops::nesterov(m, g, mu, n); }
void signs(const float* x, size_t n, uint8_t* bits) { loops::signs(x, n, bits); }
void signs_sum(const float* x, size_t n, uint8_t* bits, Lanes& lanes) {
  loops::signs(x, n, bits);
  loops::sum_magnitudes(x, n, lanes);
}
void expand_signs(const uint8_t* bits, size_t n, float s, float* out) {
  loops::expand_signs(bits, n, s, out);
}
void add_signs(const uint8_t* bits, size_t n, float s, float* acc) { loops::add_signs(bits, n, s, acc); }
uint32_t max_bits(const float* x, size_t n) { return loops::max_bits(x, n); }
void sum_squares(const float* x, size_t n, Lanes& lanes) { loops::sum_squares(x, n, lanes); }
Kernels::Found above(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* index, float* value,
                     size_t room) {
  return loops::above(x, n, least, first, index, value, room);
}
Kernels::FoundInFour above_in_four(const float* x, size_t quarter, uint32_t least, uint32_t* index,
                                   float* value, size_t room) {
  return loops::above_in_four(x, quarter, least, index, value, room);
}
void quantize(const float* x, size_t n, const Levels& levels, const Stream& stream, uint32_t first,
              int32_t* q, uint8_t* nonzero) {
  loops::quantize(x, n, levels, stream, first, q, nonzero);
}
void dequantize(const int32_t* q, size_t n, const Levels& levels, float* out) {
  loops::dequantize(q, n, levels, out);
}
void add_levels(const int32_t* q, size_t n, const Levels& levels, float* acc) {
  loops::add_levels(q, n, levels, acc);
}

constexpr Kernels kGeneric = {"generic",    feedback,   subtract,   nesterov,       signs, signs_sum,
                              expand_signs, add_signs,  max_bits,   sum_squares,    above, above_in_four,
                              quantize,     dequantize, add_levels, &kGenericBlocks};

}  // namespace

const Kernels& generic_kernels() { return kGeneric; }

const Kernels& best_kernels() {
  static const Kernels* const best = [] {
    const Kernels* avx2 = avx2_kernels();
    return avx2 != nullptr ? avx2 : &kGeneric;
  }();
  return *best;
}

}  // namespace byteps::compress
