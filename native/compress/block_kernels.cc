// The generic kernels of blocks.
#include "compress/block_kernels.h"

#include "compress/block_loops.h"

namespace byteps::compress {

namespace {

void nearest(const float* x, size_t n, float inverse, int8_t* q) { loops::nearest(x, n, inverse, q); }
void stochastic(const float* x, size_t n, float inverse, int8_t most, const Stream& stream, uint32_t first,
                int8_t* q) {
  loops::stochastic(x, n, inverse, most, stream, first, q);
}
void pack(const int8_t* q, size_t n, uint8_t* out) { loops::pack(q, n, out); }
void unpack(const uint8_t* in, size_t n, int8_t* q) { loops::unpack(in, n, q); }
int8_t least(const int8_t* q, size_t n) { return loops::least(q, n); }
void expand(const int8_t* q, size_t n, float step, float* out) { loops::expand(q, n, step, out); }
void add(const int8_t* q, size_t n, float step, float* acc) { loops::add(q, n, step, acc); }

}  // namespace

const BlockKernels kGenericBlocks = {nearest, stochastic, pack, unpack, least, expand, add};
#if !defined(__x86_64__)
const BlockKernels kAvx2Blocks = kGenericBlocks;
#endif

}  // namespace byteps::compress
