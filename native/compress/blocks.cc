#include "compress/blocks.h"

#include <algorithm>
#include <cstring>

#include "compress/checks.h"

namespace byteps::compress {

namespace {

// Below it 1 / step is no float32 any more, and no gradient has such a size.
constexpr float kTiny = 0x1p-100f;
constexpr uint32_t kInfinity = 0x7F800000;

}  // namespace

Blocks::Blocks(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key, const Kernels& kernels)
    : Codec(elements, kernels),
      seed_(seed),
      key_(key),
      name_(spec.kind == CodecKind::int4 ? "int4" : "int8"),
      packed_(spec.kind == CodecKind::int4),
      nearest_(spec.nearest),
      most_(packed_ ? 7 : 127) {}

template <class Byte, class Step>
void Blocks::walk_blocks(Byte* payload, Step&& step) const {
  for (size_t begin = 0; begin < elements_; begin += kBlock) {
    step(begin, std::min(kBlock, elements_ - begin), payload);
    payload += block_bytes(kBlock);
  }
}

Blocks::Written Blocks::write(const float* x, size_t begin, size_t count, const Stream& stream,
                              std::byte* out) {
  const BlockKernels& kernels = *kernels_.blocks;
  const uint32_t bits = kernels_.max_bits(x, count);
  const float largest = std::bit_cast<float>(bits), most = most_;
  std::byte* const place = out + sizeof(float);
  int8_t* const codes = packed_ ? codes_ : reinterpret_cast<int8_t*>(place);
  const bool is_finite = bits < kInfinity;
  const float step = !is_finite ? std::bit_cast<float>(kNaN) : largest < kTiny ? 0 : largest / most;
  if (!(step > 0)) {
    std::memset(codes, 0, count);
  } else if (nearest_) {
    kernels.nearest(x, count, most / largest, codes);
  } else {
    kernels.stochastic(x, count, most / largest, most_, stream, static_cast<uint32_t>(begin), codes);
  }
  if (packed_) kernels.pack(codes, count, reinterpret_cast<uint8_t*>(place));
  put_scale(out, step);
  return {codes, step};
}

size_t Blocks::encode(const float* x, uint32_t round, std::byte* out) {
  const Stream stream(seed_, key_, round);
  walk_blocks(out, [&](size_t begin, size_t count, std::byte* block) {
    write(x + begin, begin, count, stream, block);
  });
  return max_bytes();
}

// What is taken away is what arrives: q * step. Adding q * -step gives the same bits.
size_t Blocks::encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                                    std::byte* out) {
  const Stream stream(seed_, key_, round);
  walk_blocks(out, [&](size_t begin, size_t count, std::byte* block) {
    float* const p = error + begin;
    kernels_.feedback(g + begin, a, c, p, count);
    const Written written = write(p, begin, count, stream, block);
    kernels_.blocks->add(written.codes, count, -written.step, p);
  });
  return max_bytes();
}

Blocks::Written Blocks::read(const std::byte* in, size_t count) {
  const BlockKernels& kernels = *kernels_.blocks;
  const float step = get_scale(name_, in);
  const auto* place = reinterpret_cast<const uint8_t*>(in + sizeof(float));
  const auto* codes = reinterpret_cast<const int8_t*>(place);
  if (packed_) {
    if (count % 2 != 0 && place[count / 2] >> 4 != 0) {
      throw WireError("int4: half a byte behind the last element is set");
    }
    kernels.unpack(place, count, codes_);
    codes = codes_;
  }
  if (kernels.least(codes, count) < -most_) throw WireError(std::string(name_) + ": a code beyond the last");
  const bool has_codes = step > 0 && std::bit_cast<uint32_t>(step) < kInfinity;
  if (!has_codes) {
    if (step != 0 && std::bit_cast<uint32_t>(step) != kNaN) {
      throw WireError(std::string(name_) + ": an infinite step, or a NaN of another kind");
    }
    if (std::any_of(codes, codes + count, [](int8_t code) { return code != 0; })) {
      throw WireError(std::string(name_) + ": codes in a block that has no step");
    }
  }
  return {codes, step};
}

void Blocks::decode(const std::byte* in, size_t bytes, uint32_t, float* out) {
  check_bytes(name_, bytes, max_bytes());
  walk_blocks(in, [&](size_t begin, size_t count, const std::byte* block) {
    const Written written = read(block, count);
    kernels_.blocks->expand(written.codes, count, written.step, out + begin);
  });
}

void Blocks::decode_add(const std::byte* in, size_t bytes, uint32_t, float* acc) {
  check_bytes(name_, bytes, max_bytes());
  walk_blocks(in, [&](size_t begin, size_t count, const std::byte* block) {
    const Written written = read(block, count);
    kernels_.blocks->add(written.codes, count, written.step, acc + begin);
  });
}

}  // namespace byteps::compress
