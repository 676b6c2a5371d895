// What the ranks of a simulated job contribute, and what each of them must get back, to the bit. Pure.
//
// Rank r contributes p * 4^r, where p (1, 2 or 3) depends on the tensor, the round and the element. So a sum
// divided by p, written with the digits 0 to 3, says of each rank how often it was counted: 1111 is right for
// four, 1121 has rank 1 twice, 1011 misses rank 2. Up to four ranks that is below 256, which all types hold
// exactly, half types and compressed ones too; eight ranks need 16 bits. Averages are of 1, 2, 4 or 8 ranks,
// so that dividing is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan.h"

namespace byteps::sim {

// What all ranks call for a round of a tensor.
struct Call {
  enum class Kind : uint8_t { sum, average, broadcast } kind = Kind::sum;
  uint16_t root = 0;  // of a broadcast
};
Call call_of(const Plan& plan, uint32_t tensor, uint32_t round);

using Elements = std::vector<std::byte>;
Elements contribution(const Plan& plan, uint32_t tensor, uint32_t round, uint16_t rank);
Elements result(const Plan& plan, uint32_t tensor, uint32_t round);

// Who was counted in a result, and how often: a digit of base 4 for each rank, rank 0 the last.
constexpr uint64_t kTorn = UINT64_MAX;  // the elements do not say the same, or nothing that could be
uint64_t counted(const Plan& plan, uint32_t tensor, uint32_t round, const Elements& result);
uint64_t right_count(const Plan& plan, uint32_t tensor, uint32_t round);
// "1121", the highest rank first.
std::string count_text(const Plan& plan, uint64_t counted);

}  // namespace byteps::sim
