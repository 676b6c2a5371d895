// The kernels for x86-64 processors with AVX2 and F16C.
#pragma once

#include "reduce/sum.h"

namespace byteps {

// Null when this processor (or this build's architecture) lacks the instructions.
const KernelSet* avx2_kernels();

}  // namespace byteps
