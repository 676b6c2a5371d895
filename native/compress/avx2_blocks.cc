// The kernels of int8 and int4 blocks with AVX2: 32 codes at a time.
#include "compress/block_kernels.h"

#if defined(__x86_64__)

#include "compress/avx2_lanes.h"
#include "compress/block_loops.h"

namespace byteps::compress {

namespace {

constexpr size_t kStep = 32;

// Thirty-two whole numbers in four registers to bytes, in their order: packing works on halves of registers.
BYTEPS_AVX2_INLINE __m256i narrowed(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

BYTEPS_AVX2_INLINE void store(int8_t* q, __m256i codes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), codes);
}
BYTEPS_AVX2_INLINE __m256i load(const int8_t* q) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
}

BYTEPS_AVX2 void nearest(const float* x, size_t n, float inverse, int8_t* q) {
  const __m256 factor = _mm256_set1_ps(inverse);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    __m256i whole[4];
    for (size_t j = 0; j < 4; ++j) {
      whole[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), factor));
    }
    store(q + i, narrowed(whole[0], whole[1], whole[2], whole[3]));
  }
  loops::nearest(x, n, inverse, q, i);
}

// floor(x * factor + u), u in 16 bits
BYTEPS_AVX2_INLINE __m256i rounded(const float* x, __m256 factor, __m256i u) {
  const __m256 chance = _mm256_mul_ps(_mm256_cvtepi32_ps(u), _mm256_set1_ps(0x1p-16f));
  const __m256 moved = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x), factor), chance);
  return _mm256_cvttps_epi32(_mm256_floor_ps(moved));
}

BYTEPS_AVX2 void stochastic(const float* x, size_t n, float inverse, int8_t most, const Stream& drawn,
                            uint32_t first, int8_t* q) {
  const Stream stream = drawn;  // a copy: as far as a compiler knows, what is written could be it
  const __m256 factor = _mm256_set1_ps(inverse);
  const __m256i low_half = _mm256_set1_epi32(0xFFFF),
                stride = _mm256_set1_epi32(static_cast<int32_t>(8 * kIndexStep));
  const __m256i top = _mm256_set1_epi8(most), bottom = _mm256_set1_epi8(static_cast<int8_t>(-most));
  __m256i product = index_products(first / 2);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    __m256i whole[4];
    for (size_t j = 0; j < 4; j += 2) {
      const __m256i bits = random_bits(stream, product);
      product = _mm256_add_epi32(product, stride);
      whole[j] = rounded(x + i + 8 * j, factor, _mm256_and_si256(bits, low_half));
      whole[j + 1] = rounded(x + i + 8 * j + 8, factor, _mm256_srli_epi32(bits, 16));
    }
    const __m256i codes = narrowed(whole[0], whole[1], whole[2], whole[3]);
    store(q + i, _mm256_max_epi8(_mm256_min_epi8(codes, top), bottom));
  }
  loops::stochastic(x, n, inverse, most, stream, first, q, i);
}

// Pairs of codes become 16-bit numbers low + 16 * high, which fit in bytes.
BYTEPS_AVX2_INLINE __m256i paired(const int8_t* q) {
  const __m256i low_bits = _mm256_and_si256(load(q), _mm256_set1_epi8(15));
  return _mm256_maddubs_epi16(low_bits, _mm256_set1_epi16(0x1001));
}

BYTEPS_AVX2 void pack(const int8_t* q, size_t n, uint8_t* out) {
  size_t i = 0;
  for (; i + 2 * kStep <= n; i += 2 * kStep) {
    const __m256i bytes = _mm256_packus_epi16(paired(q + i), paired(q + i + kStep));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i / 2), _mm256_permute4x64_epi64(bytes, 0xD8));
  }
  loops::pack(q, n, out, i);
}

BYTEPS_AVX2 void unpack(const uint8_t* in, size_t n, int8_t* q) {
  const __m128i half = _mm_set1_epi8(15);
  const __m256i sign = _mm256_set1_epi8(8);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i / 2));
    const __m128i low = _mm_and_si128(bytes, half), high = _mm_and_si128(_mm_srli_epi16(bytes, 4), half);
    const __m256i codes = _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
    store(q + i, _mm256_sub_epi8(_mm256_xor_si256(codes, sign), sign));
  }
  loops::unpack(in, n, q, i);
}

BYTEPS_AVX2 int8_t least(const int8_t* q, size_t n) { return loops::least(q, n); }

BYTEPS_AVX2_INLINE __m256 values(const int8_t* q, __m256 step) {
  const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q)));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(wide), step);
}

BYTEPS_AVX2 void expand(const int8_t* q, size_t n, float step, float* out) {
  const __m256 wide = _mm256_set1_ps(step);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, values(q + i, wide));
  loops::expand(q, n, step, out, i);
}

BYTEPS_AVX2 void add(const int8_t* q, size_t n, float step, float* acc) {
  const __m256 wide = _mm256_set1_ps(step);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(acc + i, _mm256_add_ps(_mm256_loadu_ps(acc + i), values(q + i, wide)));
  }
  loops::add(q, n, step, acc, i);
}

}  // namespace

const BlockKernels kAvx2Blocks = {nearest, stochastic, pack, unpack, least, expand, add};

}  // namespace byteps::compress

#endif
