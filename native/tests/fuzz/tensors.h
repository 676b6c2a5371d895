// The tensors of the fuzzers' jobs: small, of every kind that servers and workers treat differently.
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "compress/declared.h"
#include "reduce/dtype.h"
#include "reduce/half.h"
#include "wire/cut.h"
#include "wire/limits.h"

namespace byteps::fuzz {

struct TensorKind {
  DType dtype;
  Cut cut;
  std::optional<compress::DeclaredCodec> codec{};
};

inline compress::DeclaredCodec codec(compress::CodecKind kind, double k, compress::Feedback feedback) {
  compress::DeclaredCodec made;
  made.spec.kind = kind;
  made.spec.k = k;
  made.feedback = feedback;
  made.spec.feedback = feedback != compress::Feedback::none;
  made.spec.scaling = kind == compress::CodecKind::onebit;
  made.spec.natural = kind == compress::CodecKind::dithering;
  made.spec.nearest = feedback != compress::Feedback::none;
  made.spec.halves = kind == compress::CodecKind::randomk;
  return made;
}

// A page is the smallest piece; partitions of the second have two of them, and its last piece is short.
inline const std::vector<TensorKind>& tensor_kinds() {
  using compress::CodecKind;
  using compress::Feedback;
  constexpr uint32_t kPiece = limits::kMinPieceBytes;
  static const std::vector<TensorKind> kinds = {
      {DType::f32, {8, 4096, false, kPiece}},
      {DType::f32, {3 * kPiece + 20, 2 * kPiece, false, kPiece}},
      {DType::f16, {40, 4096, false, kPiece}},
      {DType::bf16, {12, 4096, false, kPiece}},
      {DType::i32, {16400, 1 << 20, false, 1 << 19}},  // long enough to go by address
      {DType::f32, {64, 32, true, kPiece}, codec(CodecKind::topk, 2, Feedback::none)},
      {DType::f32, {40, 4096, true, kPiece}, codec(CodecKind::onebit, 0, Feedback::vanilla)},
      {DType::f64, {192, 4096, true, kPiece}, codec(CodecKind::dithering, 4, Feedback::none)},
      {DType::f16, {40, 4096, true, kPiece}, codec(CodecKind::randomk, 5, Feedback::sparse)},
      {DType::f32, {40000, 1 << 20, true, kPiece}, codec(CodecKind::fp16, 0, Feedback::corrected)},
      {DType::f32, {2060, 1 << 20, true, kPiece}, codec(CodecKind::int8, 0, Feedback::none)},
      {DType::bf16, {30, 4096, true, kPiece}, codec(CodecKind::int4, 0, Feedback::vanilla)},
  };
  return kinds;
}

// `count` elements of this value.
inline std::vector<std::byte> constant(DType dtype, size_t count, double value) {
  std::vector<std::byte> out(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    std::byte* at = out.data() + i * size_of(dtype);
    const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
    switch (dtype) {
      case DType::f32:
        put(static_cast<float>(value));
        break;
      case DType::f64:
        put(value);
        break;
      case DType::f16:
        put(f32_to_f16(static_cast<float>(value)));
        break;
      case DType::bf16:
        put(f32_to_bf16(static_cast<float>(value)));
        break;
      default:
        put(static_cast<int32_t>(value));
    }
  }
  return out;
}

inline double element(DType dtype, const std::byte* at) {
  const auto get = [at](auto typed) {
    std::memcpy(&typed, at, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::f32:
      return get(float{});
    case DType::f64:
      return get(double{});
    case DType::f16:
      return f16_to_f32(get(uint16_t{}));
    case DType::bf16:
      return bf16_to_f32(get(uint16_t{}));
    default:
      return get(int32_t{});
  }
}

// A payload that the codec of this kind writes, for a piece of so many elements.
inline std::vector<std::byte> encoded(const TensorKind& kind, size_t elements, float value) {
  const auto made = make_codec(kind.codec->spec, elements, kind.codec->seed, 1);
  const std::vector<float> x(elements, value);
  std::vector<std::byte> out(made->max_bytes());
  out.resize(made->encode(x.data(), 0, out.data()));
  return out;
}

}  // namespace byteps::fuzz
