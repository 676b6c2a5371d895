#include "sim/model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "reduce/half.h"

namespace byteps::sim {
namespace {

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

// Elements repeat after so many: a prime, so that no piece or partition looks like another one.
constexpr uint64_t kPeriod = 4099;

double pattern(uint32_t tensor, uint32_t round, uint64_t element) {
  static const auto table = [] {
    std::array<uint8_t, kPeriod> made;
    for (uint64_t i = 0; i < kPeriod; ++i) made[i] = static_cast<uint8_t>(mixed(mixed(i + 1)) % 3 + 1);
    return made;
  }();
  return table[(element + 5 * uint64_t{round} + 77 * uint64_t{tensor}) % kPeriod];
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void write(DType dtype, std::byte* at, double value) {
  switch (dtype) {
    case DType::f32:
      return put(at, static_cast<float>(value));
    case DType::f64:
      return put(at, value);
    case DType::f16:
      return put(at, f32_to_f16(static_cast<float>(value)));
    case DType::bf16:
      return put(at, f32_to_bf16(static_cast<float>(value)));
    case DType::i64:
      return put(at, static_cast<int64_t>(value));
    case DType::i32:
      return put(at, static_cast<int32_t>(value));
    case DType::u8:
    case DType::i8:
      return put(at, static_cast<uint8_t>(value));
  }
}

double read(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32:
      return get<float>(at);
    case DType::f64:
      return get<double>(at);
    case DType::f16:
      return f16_to_f32(get<uint16_t>(at));
    case DType::bf16:
      return bf16_to_f32(get<uint16_t>(at));
    case DType::i64:
      return static_cast<double>(get<int64_t>(at));
    case DType::i32:
      return get<int32_t>(at);
    case DType::u8:
    case DType::i8:
      return get<uint8_t>(at);
  }
  return 0;
}

double power(uint16_t rank) { return static_cast<double>(uint64_t{1} << (2 * rank)); }

// Of the right count, or of a result.
double divisor(const Plan& plan, const Call& call) {
  return call.kind == Call::Kind::average ? plan.workers : 1;
}

Elements patterned(const Plan& plan, uint32_t tensor, uint32_t round, double factor) {
  const TensorPlan& planned = plan.tensors[tensor];
  const size_t size = size_of(planned.dtype);
  Elements out(planned.elements * size);
  for (uint64_t i = 0; i < std::min(planned.elements, kPeriod); ++i) {
    write(planned.dtype, out.data() + i * size, pattern(tensor, round, i) * factor);
  }
  for (size_t made = kPeriod * size; made < out.size(); made *= 2) {
    std::memcpy(out.data() + made, out.data(), std::min(made, out.size() - made));
  }
  return out;
}

}  // namespace

Call call_of(const Plan& plan, uint32_t tensor, uint32_t round) {
  if (!plan.calls_differ) return {};
  const uint64_t drawn = mixed(mixed(plan.seed + 1) + (uint64_t{tensor} << 32) + round + 1);
  if (drawn % 5 == 0) return {Call::Kind::broadcast, static_cast<uint16_t>(drawn / 5 % plan.workers)};
  const bool divides = std::has_single_bit(plan.workers) && is_float(plan.tensors[tensor].dtype);
  return {drawn % 5 == 1 && divides ? Call::Kind::average : Call::Kind::sum};
}

Elements contribution(const Plan& plan, uint32_t tensor, uint32_t round, uint16_t rank) {
  return patterned(plan, tensor, round, power(rank));
}

uint64_t right_count(const Plan& plan, uint32_t tensor, uint32_t round) {
  const Call call = call_of(plan, tensor, round);
  if (call.kind == Call::Kind::broadcast) return uint64_t{1} << (2 * call.root);
  uint64_t all = 0;
  for (uint16_t rank = 0; rank < plan.workers; ++rank) all += uint64_t{1} << (2 * rank);
  return all;
}

Elements result(const Plan& plan, uint32_t tensor, uint32_t round) {
  const double count = static_cast<double>(right_count(plan, tensor, round));
  return patterned(plan, tensor, round, count / divisor(plan, call_of(plan, tensor, round)));
}

uint64_t counted(const Plan& plan, uint32_t tensor, uint32_t round, const Elements& result) {
  const DType dtype = plan.tensors[tensor].dtype;
  const double times = divisor(plan, call_of(plan, tensor, round));
  const double most = power(plan.workers);
  double all = -1;
  for (uint64_t i = 0; i < std::min(plan.tensors[tensor].elements, kPeriod); ++i) {
    const double count = read(dtype, result.data() + i * size_of(dtype)) * times / pattern(tensor, round, i);
    if (i == 0) all = count;
    if (count != all || count < 0 || count >= most || count != std::floor(count)) return kTorn;
  }
  const size_t period = kPeriod * size_of(dtype);
  if (result.size() > period && std::memcmp(result.data(), result.data() + period, result.size() - period)) {
    return kTorn;
  }
  return static_cast<uint64_t>(all);
}

std::string count_text(const Plan& plan, uint64_t counted) {
  if (counted == kTorn) return "torn";
  std::string text;
  for (int rank = plan.workers - 1; rank >= 0; --rank) text += std::to_string(counted >> (2 * rank) & 3);
  return text;
}

}  // namespace byteps::sim
