#include "compress/onebit.h"

#include "compress/checks.h"
#include "compress/walk.h"

namespace byteps::compress {

namespace {

uint8_t* bits_of(std::byte* payload) { return reinterpret_cast<uint8_t*>(payload + sizeof(float)); }
const uint8_t* bits_of(const std::byte* payload) {
  return reinterpret_cast<const uint8_t*>(payload + sizeof(float));
}

float mean_of(const Lanes& lanes, size_t n) {
  return static_cast<float>(lane_total(lanes) / static_cast<double>(n));
}

}  // namespace

OneBit::OneBit(const CodecSpec& spec, size_t elements, uint64_t, uint64_t, const Kernels& kernels)
    : Codec(elements, kernels), scaling_(spec.scaling) {}

size_t OneBit::encode(const float* x, uint32_t, std::byte* out) {
  float scale = 1;
  if (scaling_) {
    Lanes lanes;
    kernels_.signs_sum(x, elements_, bits_of(out), lanes);
    scale = mean_of(lanes, elements_);
  } else {
    kernels_.signs(x, elements_, bits_of(out));
  }
  put_scale(out, scale);
  return max_bytes();
}

float OneBit::checked(const std::byte* in, size_t bytes) const {
  check_bytes("onebit", bytes, max_bytes());
  const float scale = get_scale("onebit", in);
  if (!scaling_ && scale != 1) throw WireError("onebit: a scale other than 1, and scaling is off");
  const uint8_t last = bits_of(in)[(elements_ - 1) / 8];
  if (elements_ % 8 != 0 && last >> (elements_ % 8) != 0) {
    throw WireError("onebit: bits behind the last element are set");
  }
  return scale;
}

void OneBit::decode(const std::byte* in, size_t bytes, uint32_t, float* out) {
  kernels_.expand_signs(bits_of(in), elements_, checked(in, bytes), out);
}

void OneBit::decode_add(const std::byte* in, size_t bytes, uint32_t, float* acc) {
  kernels_.add_signs(bits_of(in), elements_, checked(in, bytes), acc);
}

// The scale is a sum over all of p, so e is walked through twice; without scaling once is enough.
size_t OneBit::encode_with_feedback(const float* g, float a, float c, float* error, uint32_t,
                                    std::byte* out) {
  uint8_t* bits = bits_of(out);
  Lanes lanes;
  walk(elements_, [&](size_t begin, size_t count) {
    kernels_.feedback(g + begin, a, c, error + begin, count);
    if (scaling_) {
      kernels_.signs_sum(error + begin, count, bits + begin / 8, lanes);
    } else {
      kernels_.signs(error + begin, count, bits + begin / 8);
      kernels_.add_signs(bits + begin / 8, count, -1.0f, error + begin);
    }
  });
  const float scale = scaling_ ? mean_of(lanes, elements_) : 1.0f;
  if (scaling_) kernels_.add_signs(bits, elements_, -scale, error);
  put_scale(out, scale);
  return max_bytes();
}

}  // namespace byteps::compress
