// The codecs by name and number: a new one is one line here.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "compress/blocks.h"
#include "compress/codec.h"
#include "compress/dithering.h"
#include "compress/fp16.h"
#include "compress/onebit.h"
#include "compress/randomk.h"
#include "compress/topk.h"
#include "wire/limits.h"

namespace byteps::compress {

namespace {

using Make = std::unique_ptr<Codec> (*)(const CodecSpec&, size_t, uint64_t, uint64_t, const Kernels&);

template <class C>
std::unique_ptr<Codec> make(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key,
                            const Kernels& kernels) {
  return std::make_unique<C>(spec, elements, seed, key, kernels);
}

struct Entry {
  CodecKind kind;
  std::string_view name;
  Make make;
};

constexpr Entry kCodecs[] = {
    {CodecKind::onebit, "onebit", make<OneBit>},    {CodecKind::topk, "topk", make<TopK>},
    {CodecKind::randomk, "randomk", make<RandomK>}, {CodecKind::dithering, "dithering", make<Dithering>},
    {CodecKind::fp16, "fp16", make<Fp16>},          {CodecKind::int8, "int8", make<Blocks>},
    {CodecKind::int4, "int4", make<Blocks>},
};

// A number without an implementation does not compile.
constexpr bool every_kind_is_there() {
  for (uint8_t number = 1; number <= static_cast<uint8_t>(kLastKind); ++number) {
    if (kCodecs[number - 1].kind != static_cast<CodecKind>(number)) return false;
  }
  return std::size(kCodecs) == static_cast<size_t>(kLastKind);
}
static_assert(every_kind_is_there());

CustomFactory custom_factory;

void check(const CodecSpec& spec, size_t elements) {
  const size_t most = limits::kMaxPartitionBytes / sizeof(float);
  if (elements == 0 || elements > most) {
    throw std::invalid_argument("a codec for " + std::to_string(elements) + " elements: expected 1 to " +
                                std::to_string(most));
  }
  const bool sparse = spec.kind == CodecKind::topk || spec.kind == CodecKind::randomk;
  if (sparse && !(spec.k > 0 && spec.k <= static_cast<double>(most))) {
    throw std::invalid_argument("k = " + std::to_string(spec.k) + ": expected a fraction or a count above 0");
  }
  const double levels = spec.natural ? Dithering::kMaxNatural : Dithering::kMaxLinear;
  if (spec.kind == CodecKind::dithering && !(spec.k >= 1 && spec.k <= levels)) {
    throw std::invalid_argument("k = " + std::to_string(spec.k) + ": expected 1 to " +
                                std::to_string(levels) + " levels");
  }
}

}  // namespace

size_t count_of(const CodecSpec& spec, size_t elements) {
  const double wanted = spec.k >= 1 ? spec.k : spec.k * static_cast<double>(elements);
  return std::clamp<size_t>(static_cast<size_t>(wanted), 1, elements);
}

std::unique_ptr<Codec> make_codec(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key,
                                  const Kernels& kernels) {
  check(spec, elements);
  if (spec.kind == CodecKind::custom) {
    if (!custom_factory) throw std::invalid_argument("a custom codec, and no Python to run it");
    return custom_factory(spec, elements, seed, key, kernels);
  }
  const auto number = static_cast<size_t>(spec.kind);
  if (number == 0 || number > std::size(kCodecs)) throw std::invalid_argument("unknown codec number");
  return kCodecs[number - 1].make(spec, elements, seed, key, kernels);
}

void set_custom_factory(CustomFactory factory) { custom_factory = std::move(factory); }

CodecKind codec_kind(std::string_view name) {
  if (name == "custom") return CodecKind::custom;
  for (const Entry& entry : kCodecs) {
    if (entry.name == name) return entry.kind;
  }
  throw std::invalid_argument("unknown codec \"" + std::string(name) +
                              "\": expected onebit, topk, randomk, dithering, fp16, int8 or int4");
}

}  // namespace byteps::compress
