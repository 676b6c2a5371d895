#include "observe/sample.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "reduce/half.h"

namespace byteps {
namespace {

constexpr size_t kShown = 4;

template <typename T>
T load(const std::byte* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

void put(std::ostream& out, DType dtype, const std::byte* data, size_t i) {
  switch (dtype) {
    case DType::f32:
      out << load<float>(data, i);
      return;
    case DType::f64:
      out << load<double>(data, i);
      return;
    case DType::f16:
      out << f16_to_f32(load<uint16_t>(data, i));
      return;
    case DType::bf16:
      out << bf16_to_f32(load<uint16_t>(data, i));
      return;
    case DType::u8:
      out << int{load<uint8_t>(data, i)};
      return;
    case DType::i8:
      out << int{load<int8_t>(data, i)};
      return;
    case DType::i32:
      out << load<int32_t>(data, i);
      return;
    case DType::i64:
      out << load<int64_t>(data, i);
      return;
  }
}

}  // namespace

std::string sample_text(DType dtype, const std::byte* data, size_t bytes) {
  const size_t n = bytes / size_of(dtype);
  std::ostringstream out;
  out << name_of(dtype) << "[" << n << "] = ";
  for (size_t i = 0; i < std::min(n, kShown); ++i) {
    if (i > 0) out << ", ";
    put(out, dtype, data, i);
  }
  if (n > kShown) out << ", ...";
  return out.str();
}

bool sample_matches(const std::string& wanted, const std::string& name, uint32_t tensor) {
  return !wanted.empty() && (wanted == name || wanted == std::to_string(tensor));
}

}  // namespace byteps
