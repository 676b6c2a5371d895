#include "compress/fp16.h"

#include "compress/checks.h"
#include "compress/walk.h"
#include "reduce/sum.h"

namespace byteps::compress {

Fp16::Fp16(const CodecSpec&, size_t elements, uint64_t, uint64_t, const Kernels& kernels)
    : Codec(elements, kernels) {}

size_t Fp16::encode(const float* x, uint32_t, std::byte* out) {
  narrow(DType::f16, out, x, elements_);
  return max_bytes();
}

void Fp16::decode(const std::byte* in, size_t bytes, uint32_t, float* out) {
  check_bytes("fp16", bytes, max_bytes());
  widen(DType::f16, out, in, elements_);
}

void Fp16::decode_add(const std::byte* in, size_t bytes, uint32_t, float* acc) {
  check_bytes("fp16", bytes, max_bytes());
  add_widened(DType::f16, acc, in, elements_);
}

size_t Fp16::encode_with_feedback(const float* g, float a, float c, float* error, uint32_t, std::byte* out) {
  walk(elements_, [&](size_t begin, size_t count) {
    float* p = error + begin;
    kernels_.feedback(g + begin, a, c, p, count);
    narrow(DType::f16, out + 2 * begin, p, count);
    widen(DType::f16, decoded_, out + 2 * begin, count);
    kernels_.subtract(decoded_, p, count);
  });
  return max_bytes();
}

}  // namespace byteps::compress
