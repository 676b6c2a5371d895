// A tensor's first values as text, for BYTEPS_DEBUG_SAMPLE_TENSOR and BYTEPS_SERVER_DEBUG.
#pragma once

#include <cstddef>
#include <string>

#include "reduce/dtype.h"

namespace byteps {

// For example "float32[1024] = 0.5, -1, 3.25, 0, ...".
std::string sample_text(DType dtype, const std::byte* data, size_t bytes);

// Whether the user asked for this tensor: by name, or by its number.
bool sample_matches(const std::string& wanted, const std::string& name, uint32_t tensor);

}  // namespace byteps
