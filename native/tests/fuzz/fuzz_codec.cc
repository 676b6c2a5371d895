// Every decoder takes any bytes: it decodes them or throws WireError, and touches nothing beyond its arrays.
//
// The first bytes choose codec, parameters and elements. The rest is decoded as a payload; then as elements
// it is encoded by both sets of kernels, which must agree, and what they wrote must decode.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "compress/codec.h"
#include "compress/round_sum.h"

using namespace byteps;
using namespace byteps::compress;

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << what << "\n";
  std::abort();
}

void decode_any(const CodecSpec& spec, size_t elements, const std::vector<std::byte>& payload) {
  const auto codec = make_codec(spec, elements, 1, 2);
  std::vector<float> out(elements), acc(elements);
  bool taken = true, added = true;
  try {
    codec->decode(payload.data(), payload.size(), 3, out.data());
  } catch (const WireError&) {
    taken = false;
  }
  try {
    codec->decode_add(payload.data(), payload.size(), 3, acc.data());
  } catch (const WireError&) {
    added = false;
  }
  require(taken == added, "decode and decode_add disagree about a payload");
  for (size_t i = 0; taken && i < elements; ++i) {
    require(out[i] == acc[i] || (std::isnan(out[i]) && std::isnan(acc[i])), "decode and decode_add differ");
  }
  const auto sum = make_round_sum(spec, elements, 1, 2, 2);
  sum->clear();
  try {
    sum->add(payload.data(), payload.size(), 3);
    sum->add(payload.data(), payload.size(), 3);
    std::vector<std::byte> answer(sum->max_bytes());
    sum->encode(3, answer.data());
  } catch (const WireError&) {
    require(!taken, "a sum refuses what a decoder takes");
  }
}

void encode_any(const CodecSpec& spec, const std::vector<float>& x) {
  std::vector<std::byte> first;
  for (const Kernels* kernels : {&generic_kernels(), &best_kernels()}) {
    const auto codec = make_codec(spec, x.size(), 1, 2, *kernels);
    std::vector<std::byte> out(codec->max_bytes());
    out.resize(codec->encode(x.data(), 3, out.data()));
    if (kernels == &generic_kernels()) first = out;
    require(out == first, "the sets of kernels write different bytes");
    std::vector<float> back(x.size()), error(x.size());
    codec->decode(out.data(), out.size(), 3, back.data());
    std::vector<std::byte> room(codec->max_bytes());
    codec->encode_with_feedback(x.data(), 1, 1, error.data(), 3, room.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  CodecSpec spec;
  spec.kind = static_cast<CodecKind>(1 + data[0] % static_cast<uint8_t>(kLastKind));
  spec.scaling = spec.l2 = spec.halves = (data[0] & 0x40) != 0;
  spec.natural = spec.feedback = spec.nearest = (data[0] & 0x80) != 0;
  spec.k = data[1] < 128 ? 1 + data[1] % 127 : (data[1] - 127) / 130.0;
  if (spec.kind == CodecKind::dithering && spec.k < 1) spec.k = spec.natural ? 127 : 1 << 20;
  const size_t elements = 1 + (size_t{data[2]} << 8 | data[3]) % 9000;
  const auto* bytes = reinterpret_cast<const std::byte*>(data + 4);
  decode_any(spec, elements, {bytes, bytes + size - 4});
  std::vector<float> x((size - 4) / sizeof(float));
  if (x.empty()) return 0;
  std::memcpy(x.data(), bytes, x.size() * sizeof(float));
  encode_any(spec, x);
  return 0;
}
