// What the files of AVX2 kernels share. Only functions with the target attribute may use the instructions;
// FMA is left out of it on purpose: a fused product would change bits that workers, servers and the reference
// must agree on.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compress/random.h"

#define BYTEPS_AVX2 __attribute__((target("avx2")))
#define BYTEPS_AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

namespace byteps::compress {

// The processor's own prefetching stops at the end of a page; this walks on. Behind the end of a span it does
// nothing.
BYTEPS_AVX2_INLINE void prefetch(const float* x) {
  _mm_prefetch(reinterpret_cast<const char*>(x + 512), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(x + 528), _MM_HINT_T0);
}

constexpr uint32_t kIndexStep = 0x9E3779B1u;

// index * kIndexStep for eight indices from first on.
BYTEPS_AVX2_INLINE __m256i index_products(uint32_t first) {
  const __m256i ramp = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_mullo_epi32(_mm256_add_epi32(ramp, _mm256_set1_epi32(static_cast<int32_t>(first))),
                            _mm256_set1_epi32(static_cast<int32_t>(kIndexStep)));
}

// Stream::bits in eight lanes; product is index * kIndexStep of each.
BYTEPS_AVX2_INLINE __m256i random_bits(const Stream& stream, __m256i product) {
  __m256i h = _mm256_add_epi32(product, _mm256_set1_epi32(static_cast<int32_t>(stream.low)));
  h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
  h = _mm256_mullo_epi32(h, _mm256_set1_epi32(static_cast<int32_t>(0x85EBCA6Bu)));
  h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 13));
  h = _mm256_xor_si256(h, _mm256_set1_epi32(static_cast<int32_t>(stream.high)));
  h = _mm256_mullo_epi32(h, _mm256_set1_epi32(static_cast<int32_t>(0xC2B2AE35u)));
  return _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
}

}  // namespace byteps::compress
