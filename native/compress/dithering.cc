#include "compress/dithering.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compress/checks.h"
#include "compress/walk.h"

namespace byteps::compress {

namespace {

constexpr uint32_t kTable = 256;        // gaps and levels whose codes are kept ready
constexpr size_t kGroup = 64;           // elements between two looks at the length of a sparse block
constexpr size_t kMostSymbolBits = 56;  // a gap below 2^13, a sign, a level below 2^21: 49

// The code of a signed level: its sign, then its level.
Code level_code(uint32_t level, bool negative) {
  const Code code = elias_delta(level);
  return {code.bits << 1 | static_cast<uint64_t>(negative), code.width + 1};
}

bool has_stream(float scale) { return scale > 0 && scale <= std::numeric_limits<float>::max(); }

}  // namespace

struct Dithering::Scale {
  const Dithering& codec;
  uint32_t most = 0;
  Lanes lanes = {};

  // begin of every call is a multiple of 16.
  void add(const float* x, size_t n) {
    if (codec.l2_) {
      codec.kernels_.sum_squares(x, n, lanes);
    } else {
      most = std::max(most, codec.kernels_.max_bits(x, n));
    }
  }
  float value() const {
    return codec.l2_ ? static_cast<float>(std::sqrt(lane_total(lanes))) : std::bit_cast<float>(most);
  }
};

Dithering::Dithering(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key,
                     const Kernels& kernels)
    : Codec(elements, kernels),
      seed_(seed),
      key_(key),
      levels_(static_cast<int32_t>(spec.k)),
      width_(static_cast<uint32_t>(std::bit_width(static_cast<uint32_t>(levels_)))),
      l2_(spec.l2),
      natural_(spec.natural),
      gap_codes_(kTable),
      level_codes_(2 * std::min<size_t>(kTable, static_cast<size_t>(levels_) + 1)) {
  for (uint32_t gap = 1; gap < kTable; ++gap) gap_codes_[gap] = elias_delta(gap);
  for (uint32_t level = 1; 2 * level < level_codes_.size(); ++level) {
    for (const bool negative : {false, true})
      level_codes_[2 * level + negative] = level_code(level, negative);
  }
}

// A sparse block may get longer than a dense one by a group before it is given up.
size_t Dithering::max_bytes() const {
  const size_t blocks = (elements_ + kBlock - 1) / kBlock, bits = blocks + elements_ * (1 + width_);
  return sizeof(float) + (bits + kGroup * kMostSymbolBits) / 8 + 2 * BitWriter::kSlackBytes;
}

bool Dithering::write_sparse(BitWriter& writer, size_t count, size_t fixed_bits) const {
  const size_t before = writer.bits();
  size_t filled = 0;
  for (size_t i = 0; i < (count + 7) / 8; ++i) filled += static_cast<size_t>(std::popcount(nonzero_[i]));
  if (3 * filled >= fixed_bits) return false;  // a code has three bits at least
  writer.put(elias_delta(static_cast<uint32_t>(filled) + 1));
  uint32_t next = 0;  // the gap of an element is its index - next + 1
  for (size_t group = 0; group < count; group += kGroup) {
    uint64_t mask = 0;
    std::memcpy(&mask, nonzero_ + group / 8, std::min<size_t>(sizeof mask, (count - group + 7) / 8));
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t index = static_cast<uint32_t>(group) + static_cast<uint32_t>(std::countr_zero(mask));
      const uint32_t gap = index - next + 1;
      next = index + 1;
      const int32_t q = q_[index];
      const auto level = static_cast<uint32_t>(q < 0 ? -q : q);
      const size_t place = 2 * size_t{level} + (q < 0);
      const Code first = gap < kTable ? gap_codes_[gap] : elias_delta(gap);
      const Code second = place < level_codes_.size() ? level_codes_[place] : level_code(level, q < 0);
      writer.put(first.bits | second.bits << first.width, first.width + second.width);
    }
    if (writer.bits() - before >= fixed_bits) return false;
  }
  return true;
}

void Dithering::write_block(BitWriter& writer, size_t count) const {
  const BitWriter::Mark start = writer.mark();
  writer.put(1, 1);
  if (write_sparse(writer, count, count * (1 + width_))) return;
  writer.rewind(start);
  writer.put(0, 1);
  for (size_t i = 0; i < count; ++i) {
    const int32_t q = q_[i];
    const auto level = static_cast<uint64_t>(q < 0 ? -q : q);
    writer.put(level << 1 | static_cast<uint64_t>(q < 0), 1 + width_);
  }
}

// What is not sent is left in error, when there is one; x may be error.
size_t Dithering::write(const float* x, float* error, float scale, uint32_t round, std::byte* out) {
  put_scale(out, scale);
  if (!has_stream(scale)) {
    if (scale != 0 && error != nullptr)
      std::fill_n(error, elements_, std::numeric_limits<float>::quiet_NaN());
    return sizeof(float);
  }
  const Stream stream(seed_, key_, round);
  const Levels levels = {scale, levels_, natural_}, minus = {-scale, levels_, natural_};
  BitWriter writer(out + sizeof(float));
  for (size_t begin = 0; begin < elements_; begin += kBlock) {
    const size_t count = std::min(kBlock, elements_ - begin);
    kernels_.quantize(x + begin, count, levels, stream, static_cast<uint32_t>(begin), q_, nonzero_);
    write_block(writer, count);
    if (error != nullptr) kernels_.add_levels(q_, count, minus, error + begin);
  }
  return sizeof(float) + writer.bytes();
}

size_t Dithering::encode(const float* x, uint32_t round, std::byte* out) {
  Scale scale{*this};
  scale.add(x, elements_);
  return write(x, nullptr, scale.value(), round, out);
}

size_t Dithering::encode_with_feedback(const float* g, float c, float* error, uint32_t round,
                                       std::byte* out) {
  Scale scale{*this};
  walk(elements_, [&](size_t begin, size_t count) {
    kernels_.feedback(g + begin, c, error + begin, count);
    scale.add(error + begin, count);
  });
  return write(error, error, scale.value(), round, out);
}

void Dithering::read_sparse(BitReader& reader, size_t count) {
  const uint32_t filled = reader.elias_delta() - 1;
  if (filled > count) throw WireError("dithering: more elements than the block has");
  std::fill_n(q_, count, 0);
  uint32_t next = 0;
  for (uint32_t j = 0; j < filled; ++j) {
    const uint32_t gap = reader.elias_delta();
    const uint32_t negative = reader.get(1);
    const uint32_t level = reader.elias_delta();
    if (gap > count - next) throw WireError("dithering: an index beyond the block");
    if (level > static_cast<uint32_t>(levels_)) throw WireError("dithering: a level beyond the last");
    next += gap;
    q_[next - 1] = negative != 0 ? -static_cast<int32_t>(level) : static_cast<int32_t>(level);
  }
}

void Dithering::read_block(BitReader& reader, size_t count) {
  if (reader.get(1) != 0) return read_sparse(reader, count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = reader.get(1 + width_), level = code >> 1;
    if (level > static_cast<uint32_t>(levels_)) throw WireError("dithering: a level beyond the last");
    if (code == 1) throw WireError("dithering: a negative zero");
    q_[i] = (code & 1) != 0 ? -static_cast<int32_t>(level) : static_cast<int32_t>(level);
  }
}

// block(begin, count, levels): q_ has the block's levels, unless the scale says everything.
template <class Block>
void Dithering::read(const std::byte* in, size_t bytes, const Block& block) {
  if (bytes < sizeof(float)) throw WireError("dithering: a payload of " + std::to_string(bytes) + " bytes");
  const float scale = get_scale("dithering", in);
  const Levels levels = {scale, levels_, natural_};
  if (!has_stream(scale)) {
    check_bytes("dithering", bytes, sizeof(float));
    // A level of 0 times a scale that is not finite is NaN.
    std::fill_n(q_, kBlock, 0);
    walk(elements_, [&](size_t begin, size_t count) { block(begin, count, levels); });
    return;
  }
  BitReader reader(in + sizeof(float), bytes - sizeof(float));
  for (size_t begin = 0; begin < elements_; begin += kBlock) {
    const size_t count = std::min(kBlock, elements_ - begin);
    read_block(reader, count);
    block(begin, count, levels);
  }
  reader.finish();
}

void Dithering::decode(const std::byte* in, size_t bytes, uint32_t, float* out) {
  read(in, bytes, [&](size_t begin, size_t count, const Levels& levels) {
    kernels_.dequantize(q_, count, levels, out + begin);
  });
}

void Dithering::decode_add(const std::byte* in, size_t bytes, uint32_t, float* acc) {
  read(in, bytes, [&](size_t begin, size_t count, const Levels& levels) {
    kernels_.add_levels(q_, count, levels, acc + begin);
  });
}

}  // namespace byteps::compress
