#include "compress/dithering.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compress/checks.h"
#include "compress/walk.h"

namespace byteps::compress {

namespace {

// Elements whose codes are kept ready: small gaps and, with their signs, small levels. The width is in the
// upper bits.
constexpr uint32_t kReadyGaps = 64, kReadyPlaces = 16, kReadyShift = 56;
constexpr uint64_t kReadyBits = (uint64_t{1} << kReadyShift) - 1;
constexpr size_t kGroup = 64;           // elements between two looks at the length of a sparse block
constexpr size_t kMostSymbolBits = 56;  // a gap below 2^13, a sign, a level below 2^21: 49

// The code of a signed level: its sign, then its level.
Code level_code(uint32_t level, bool negative) {
  const Code code = elias_delta(level);
  return {code.bits << 1 | static_cast<uint64_t>(negative), code.width + 1};
}

bool has_stream(float scale) { return scale > 0 && scale <= std::numeric_limits<float>::max(); }

// Most codes of an element are short: then gap, sign and level of one, or of two that follow each other, are
// found with one look into a table. Where there is only one, the second is the first once more: a gap of 0.
struct Pair {
  uint8_t gap[2];
  int8_t q[2];
  uint8_t most;  // of the levels
  uint8_t count;
  uint8_t width;  // 0: the first code is longer than kShort bits
};
constexpr uint32_t kShort = 11;

struct ShortCode {
  uint8_t gap;
  int8_t q;
  Code code;
};

std::vector<ShortCode> short_codes() {
  std::vector<ShortCode> found;
  for (uint32_t gap = 1; gap < 64; ++gap) {
    for (uint32_t level = 1; level < 64; ++level) {
      for (const bool negative : {false, true}) {
        const Code first = elias_delta(gap), second = level_code(level, negative);
        const Code both = {first.bits | second.bits << first.width, first.width + second.width};
        const auto q =
            static_cast<int8_t>(negative ? -static_cast<int32_t>(level) : static_cast<int32_t>(level));
        if (both.width <= kShort) found.push_back({static_cast<uint8_t>(gap), q, both});
      }
    }
  }
  return found;
}

// Whatever follows the code in a look-up.
void fill(std::vector<Pair>& table, const Code& code, const Pair& pair) {
  for (uint64_t rest = 0; rest < 1u << (kShort - code.width); ++rest) {
    table[code.bits | rest << code.width] = pair;
  }
}

std::vector<Pair> every_short() {
  std::vector<Pair> table(1u << kShort);
  const std::vector<ShortCode> codes = short_codes();
  const auto level = [](const ShortCode& one) { return static_cast<uint8_t>(one.q < 0 ? -one.q : one.q); };
  for (const ShortCode& one : codes) {
    fill(table, one.code,
         {{one.gap, 0}, {one.q, one.q}, level(one), 1, static_cast<uint8_t>(one.code.width)});
  }
  for (const ShortCode& one : codes) {
    for (const ShortCode& two : codes) {
      const uint32_t width = one.code.width + two.code.width;
      if (width > kShort) continue;
      fill(table, {one.code.bits | two.code.bits << one.code.width, width},
           {{one.gap, two.gap},
            {one.q, two.q},
            std::max(level(one), level(two)),
            2,
            static_cast<uint8_t>(width)});
    }
  }
  return table;
}

const Pair* short_table() {
  static const std::vector<Pair> table = every_short();
  return table.data();
}

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
      ready_codes_(kReadyGaps * kReadyPlaces),
      level_bits_(256) {
  for (uint32_t level = 1; level < level_bits_.size(); ++level) {
    level_bits_[level] = static_cast<uint8_t>(2 + elias_delta(level).width);
  }
  for (uint32_t gap = 1; gap < kReadyGaps; ++gap) {
    for (uint32_t place = 2; place < kReadyPlaces; ++place) {
      const Code first = elias_delta(gap), second = level_code(place / 2, place % 2 != 0);
      ready_codes_[gap * kReadyPlaces + place] =
          first.bits | second.bits << first.width | uint64_t{first.width + second.width} << kReadyShift;
    }
  }
}

// A sparse block may get longer than a dense one by a group before it is given up.
size_t Dithering::max_bytes() const {
  const size_t blocks = (elements_ + kBlock - 1) / kBlock, bits = blocks + elements_ * (1 + width_);
  return sizeof(float) + (bits + kGroup * kMostSymbolBits) / 8 + 2 * BitWriter::kSlackBytes;
}

// Which of the 64 elements from group on are not at level 0.
uint64_t Dithering::mask_at(size_t group, size_t count) const {
  uint64_t mask = 0;
  std::memcpy(&mask, nonzero_ + group / 8, std::min<size_t>(sizeof mask, (count - group + 7) / 8));
  return mask;
}

size_t Dithering::filled_of(size_t count) const {
  size_t filled = 0;
  for (size_t group = 0; group < count; group += kGroup) {
    filled += static_cast<size_t>(std::popcount(mask_at(group, count)));
  }
  return filled;
}

// What a sparse block takes at least: gaps of 1. Where most elements are not zero, it spares writing a block
// twice.
size_t Dithering::least_bits(size_t count) const {
  size_t bits = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto level = static_cast<size_t>(q_[i] < 0 ? -q_[i] : q_[i]);
    bits += level_bits_[std::min(level, level_bits_.size() - 1)];
  }
  return bits;
}

bool Dithering::write_sparse(BitWriter& to, size_t count, size_t dense_bits) const {
  BitWriter writer = to;  // one that nothing else can see stays in registers
  const size_t before = writer.bits();
  const size_t filled = filled_of(count);
  if (3 * filled >= dense_bits || (2 * filled > count && least_bits(count) >= dense_bits)) return false;
  writer.put(elias_delta(static_cast<uint32_t>(filled) + 1));
  const uint64_t* const ready = ready_codes_.data();
  uint32_t next = 0;  // the gap of an element is its index - next + 1
  for (size_t group = 0; group < count; group += kGroup) {
    for (uint64_t mask = mask_at(group, count); mask != 0; mask &= mask - 1) {
      const uint32_t index = static_cast<uint32_t>(group) + static_cast<uint32_t>(std::countr_zero(mask));
      const uint32_t gap = index - next + 1;
      next = index + 1;
      const int32_t q = q_[index];
      const auto level = static_cast<uint32_t>(q < 0 ? -q : q);
      const uint32_t place = 2 * level + (q < 0);
      if (gap < kReadyGaps && place < kReadyPlaces) {
        const uint64_t code = ready[gap * kReadyPlaces + place];
        writer.put(code & kReadyBits, static_cast<uint32_t>(code >> kReadyShift));
      } else {
        const Code first = elias_delta(gap), second = level_code(level, q < 0);
        writer.put(first.bits | second.bits << first.width, first.width + second.width);
      }
    }
    if (writer.bits() - before >= dense_bits) return false;
  }
  to = writer;
  return true;
}

// As many elements as fit are put at once.
void Dithering::write_dense(BitWriter& to, size_t count) const {
  BitWriter writer = to;
  const uint32_t width = 1 + width_;
  const size_t together = 56 / width;
  for (size_t i = 0; i < count; i += together) {
    const size_t end = std::min(count, i + together);
    uint64_t word = 0;
    uint32_t used = 0;
    for (size_t j = i; j < end; ++j, used += width) {
      const int32_t q = q_[j];
      const auto level = static_cast<uint64_t>(q < 0 ? -q : q);
      word |= (level << 1 | static_cast<uint64_t>(q < 0)) << used;
    }
    writer.put(word, used);
  }
  to = writer;
}

void Dithering::write_block(BitWriter& writer, size_t count) const {
  const BitWriter start = writer;
  writer.put(1, 1);
  if (write_sparse(writer, count, count * (1 + width_))) return;
  writer = start;
  writer.put(0, 1);
  write_dense(writer, count);
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

size_t Dithering::encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                                       std::byte* out) {
  Scale scale{*this};
  walk(elements_, [&](size_t begin, size_t count) {
    kernels_.feedback(g + begin, a, c, error + begin, count);
    scale.add(error + begin, count);
  });
  return write(error, error, scale.value(), round, out);
}

void Dithering::read_sparse(BitReader& from, size_t count) {
  BitReader reader = from;
  const uint32_t filled = reader.elias_delta() - 1;
  if (filled > count) throw WireError("dithering: more elements than the block has");
  std::fill_n(q_, count, 0);
  const Pair* const table = short_table();
  const auto levels = static_cast<uint32_t>(levels_);
  uint32_t next = 0, left = filled;
  while (left > 0) {
    const uint64_t word = reader.peek();
    uint32_t used = 0;
    // Elements that lie wholly in this word, as long as their codes are short. The last of all is read below:
    // what follows it is no element.
    while (left > 1 && used + kShort <= BitReader::kPeekBits) {
      const Pair found = table[word >> used & ((1u << kShort) - 1)];
      if (found.width == 0) break;
      const uint32_t first = next + found.gap[0];
      next = first + found.gap[1];
      if (next > count) throw WireError("dithering: an index beyond the block");
      if (found.most > levels) throw WireError("dithering: a level beyond the last");
      q_[first - 1] = found.q[0];
      q_[next - 1] = found.q[1];
      used += found.width;
      left -= found.count;
    }
    reader.skip(used);
    if (used != 0) continue;
    const uint32_t gap = reader.elias_delta();
    const bool negative = reader.get(1) != 0;
    const uint32_t level = reader.elias_delta();
    if (gap > count - next) throw WireError("dithering: an index beyond the block");
    if (level > static_cast<uint32_t>(levels_)) throw WireError("dithering: a level beyond the last");
    next += gap;
    q_[next - 1] = negative ? -static_cast<int32_t>(level) : static_cast<int32_t>(level);
    --left;
  }
  from = reader;
}

void Dithering::read_dense(BitReader& from, size_t count) {
  BitReader reader = from;
  const uint32_t width = 1 + width_;
  const auto most = static_cast<uint32_t>(levels_), mask = (1u << width) - 1;
  const size_t together = BitReader::kPeekBits / width;
  bool valid = true;
  for (size_t i = 0; i < count; i += together) {
    const size_t end = std::min(count, i + together);
    uint64_t word = reader.peek();
    for (size_t j = i; j < end; ++j, word >>= width) {
      const uint32_t code = static_cast<uint32_t>(word) & mask, level = code >> 1;
      valid &= (level <= most) & (code != 1);
      q_[j] = (code & 1) != 0 ? -static_cast<int32_t>(level) : static_cast<int32_t>(level);
    }
    reader.skip(static_cast<uint32_t>(end - i) * width);
  }
  if (!valid) throw WireError("dithering: a level beyond the last, or a negative zero");
  from = reader;
}

void Dithering::read_block(BitReader& reader, size_t count) {
  if (reader.get(1) != 0) {
    read_sparse(reader, count);
  } else {
    read_dense(reader, count);
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
