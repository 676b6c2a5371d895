// CRC32C (Castagnoli), the checksum of frames.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byteps {

// The usual definition: crc32c("123456789") == 0xE3069283. Pieces chain through the seed:
// crc32c(b, nb, crc32c(a, na)) is the checksum of a followed by b. Uses the processor's CRC instruction if it
// has one.
uint32_t crc32c(const void* data, size_t n, uint32_t seed = 0);

// The same by tables, on any processor. For the tests, which compare the two.
uint32_t crc32c_portable(const void* data, size_t n, uint32_t seed = 0);

}  // namespace byteps
