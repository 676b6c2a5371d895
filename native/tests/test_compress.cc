// The codecs with both sets of kernels: against definitions written for one element at a time, against each
// other, and against payloads that a hostile peer might send.
#include "compress/codec.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "compress/bits.h"
#include "compress/momentum.h"
#include "compress/select.h"
#include "tests/check.h"

using namespace byteps;
using namespace byteps::compress;

namespace {

const Kernels* const kSets[] = {&generic_kernels(), &best_kernels()};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kQuiet = std::numeric_limits<float>::quiet_NaN();

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

CodecSpec spec_of(CodecKind kind, double k = 0) {
  CodecSpec spec;
  spec.kind = kind;
  spec.k = k;
  return spec;
}

std::vector<CodecSpec> every_spec() {
  std::vector<CodecSpec> specs = {spec_of(CodecKind::onebit),        spec_of(CodecKind::onebit),
                                  spec_of(CodecKind::topk, 0.01),    spec_of(CodecKind::topk, 0.9),
                                  spec_of(CodecKind::topk, 3),       spec_of(CodecKind::randomk, 0.01),
                                  spec_of(CodecKind::randomk, 1000), spec_of(CodecKind::fp16)};
  specs[1].scaling = true;
  for (const CodecKind kind : {CodecKind::int8, CodecKind::int4}) {
    for (const bool nearest : {false, true}) {
      specs.push_back(spec_of(kind));
      specs.back().nearest = nearest;
    }
  }
  for (const bool l2 : {false, true}) {
    for (const bool natural : {false, true}) {
      for (const double levels : {1, 2, 100}) {
        specs.push_back(spec_of(CodecKind::dithering, levels));
        specs.back().l2 = l2;
        specs.back().natural = natural;
      }
    }
  }
  return specs;
}

Floats samples(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats x(n);
  for (float& value : x) value = seed % 3 == 0 ? normal(random) : std::pow(normal(random), 5.0f);
  return x;
}

Bytes encoded(Codec& codec, const Floats& x, uint32_t round = 1) {
  Bytes out(codec.max_bytes());
  out.resize(codec.encode(x.data(), round, out.data()));
  return out;
}

// A copy of exactly this size, so that a sanitizer sees an access behind it.
void decode(Codec& codec, const Bytes& payload, Floats& out, uint32_t round = 1) {
  const Bytes exact(payload.begin(), payload.end());
  codec.decode(exact.data(), exact.size(), round, out.data());
}

bool same(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return a.size() == b.size();
}

constexpr size_t kSizes[] = {1, 2, 7, 8, 9, 31, 32, 33, 100, 2048, 2049, 4096, 4097, 10000, 50000};

}  // namespace

TEST(both_kernel_sets_give_the_same_bytes_values_and_errors) {
  uint32_t seed = 0;
  for (const CodecSpec& spec : every_spec()) {
    for (const size_t n : kSizes) {
      const Floats x = samples(n, ++seed);
      Bytes first;
      Floats first_decoded, first_sum, first_error;
      for (const Kernels* kernels : kSets) {
        const auto codec = make_codec(spec, n, 5, 6, *kernels);
        const Bytes payload = encoded(*codec, x);
        Floats out(n, kQuiet), sum = samples(n, 1), error = samples(n, 2);
        decode(*codec, payload, out);
        codec->decode_add(payload.data(), payload.size(), 1, sum.data());
        Bytes kept(codec->max_bytes());
        kept.resize(codec->encode_with_feedback(x.data(), 1, 0.7f, error.data(), 1, kept.data()));
        if (kernels == kSets[0]) {
          first = payload, first_decoded = out, first_sum = sum, first_error = error;
        }
        CHECK(payload == first);
        CHECK(same(out, first_decoded) && same(sum, first_sum) && same(error, first_error));
      }
    }
  }
}

TEST(error_feedback_is_its_definition) {
  uint32_t seed = 100;
  for (CodecSpec spec : every_spec()) {
    spec.feedback = true;
    for (const size_t n : {size_t{1}, size_t{33}, size_t{9000}}) {
      const auto codec = make_codec(spec, n, 5, 6), plain = make_codec(spec, n, 5, 6);
      const Floats g = samples(n, ++seed);
      Floats error = samples(n, ++seed), p(n), decoded(n);
      for (size_t i = 0; i < n; ++i) p[i] = g[i] + 0.5f * error[i];
      const Bytes expected = encoded(*plain, p, 3);
      Bytes out(codec->max_bytes());
      out.resize(codec->encode_with_feedback(g.data(), 1, 0.5f, error.data(), 3, out.data()));
      CHECK(out == expected);
      decode(*plain, expected, decoded, 3);
      for (size_t i = 0; i < n; ++i) p[i] -= decoded[i];
      CHECK(same(error, p));
    }
  }
}

TEST(special_values_reach_no_kernel_unprepared) {
  const float values[] = {0.0f, -0.0f, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f, kInf, -kInf, kQuiet, 1.0f};
  std::mt19937 random(7);
  for (const CodecSpec& spec : every_spec()) {
    for (int trial = 0; trial < 30; ++trial) {
      Floats x(1 + random() % 100);
      for (float& value : x) value = values[random() % (trial % 2 == 0 ? 6 : std::size(values))];
      Bytes first;
      for (const Kernels* kernels : kSets) {
        const auto codec = make_codec(spec, x.size(), 1, 2, *kernels);
        const Bytes payload = encoded(*codec, x);
        Floats out(x.size());
        decode(*codec, payload, out);
        if (kernels == kSets[0]) first = payload;
        CHECK(payload == first);
      }
    }
  }
}

TEST(selection_is_exact_whatever_the_distribution) {
  constexpr size_t kN = 40000;
  std::mt19937 random(11);
  for (int kind = 0; kind < 6; ++kind) {
    Floats x(kN);
    for (size_t i = 0; i < kN; ++i) {
      const auto r = static_cast<float>(random() % 1000);
      // constant, few values, sorted, large ones only where no sample looks, mostly zeros, all kinds of bits
      const float choices[] = {1.0f,
                               std::fmod(r, 3.0f),
                               static_cast<float>(i),
                               i % 78 > 40 ? r : 0.001f * r,
                               i % 999 == 0 ? r : 0.0f,
                               std::bit_cast<float>(static_cast<uint32_t>(random()))};
      x[i] = choices[kind];
    }
    for (const size_t k : {size_t{1}, size_t{40}, size_t{400}, size_t{5000}, kN / 2, kN}) {
      std::vector<uint32_t> order(kN);
      for (uint32_t i = 0; i < kN; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return compress::size_of(x[a]) > compress::size_of(x[b]);
      });
      std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
      order.resize(k);
      for (const Kernels* kernels : kSets) {
        Select select(kN, k, *kernels);
        const Elements& chosen = select.largest(x.data());
        CHECK(std::equal(order.begin(), order.end(), chosen.index.begin()));
      }
    }
  }
}

TEST(codes_come_back) {
  std::vector<uint32_t> values;
  for (uint32_t v = 1; v < 2000; ++v) values.push_back(v);
  for (uint32_t shift = 11; shift < 28; ++shift) values.push_back((1u << shift) + shift);
  for (const uint32_t b : {0u, 1u, 9u, 20u}) {
    size_t room = 64;
    for (const uint32_t v : values) room += 20 + (v >> b) / 8;
    Bytes out(room);
    BitWriter writer(out.data());
    for (const uint32_t v : values) {
      if (b == 0 && v > 5000) continue;
      writer.put(elias_delta(v));
      writer.put_rice(v, b);
    }
    out.resize(writer.bytes());
    BitReader reader(out.data(), out.size());
    for (const uint32_t v : values) {
      if (b == 0 && v > 5000) continue;
      CHECK_EQ(reader.elias_delta(), v);
      CHECK_EQ(reader.rice(b, v + 1), v);
    }
    reader.finish();
  }
}

TEST(a_payload_that_is_too_short_or_too_long_is_refused) {
  for (const CodecSpec& spec : every_spec()) {
    for (const size_t n : {size_t{1}, size_t{13}, size_t{5000}}) {
      const auto codec = make_codec(spec, n, 1, 2);
      const Bytes payload = encoded(*codec, samples(n, 3));
      Floats out(n);
      for (const size_t cut : {size_t{1}, size_t{2}, payload.size() / 2, payload.size()}) {
        const Bytes shorter(payload.begin(),
                            payload.end() - static_cast<std::ptrdiff_t>(std::min(cut, payload.size())));
        CHECK_THROWS(decode(*codec, shorter, out), WireError);
        CHECK_THROWS(codec->decode_add(shorter.data(), shorter.size(), 1, out.data()), WireError);
      }
      Bytes longer = payload;
      longer.push_back(std::byte{0});
      CHECK_THROWS(decode(*codec, longer, out), WireError);
    }
  }
}

namespace {

// Whether the payload of an encoder, changed in one place, is refused with these words in the reason.
bool refused(const CodecSpec& spec, size_t n, const Bytes& payload, const std::string& reason) {
  const auto codec = make_codec(spec, n, 1, 2);
  Floats out(n);
  try {
    decode(*codec, payload, out);
  } catch (const WireError& error) {
    const bool found = std::string(error.what()).find(reason) != std::string::npos;
    if (!found) std::cerr << "refused because: " << error.what() << "\n";
    return found;
  }
  return false;
}

Bytes with_scale(float scale, const Bytes& stream) {
  Bytes out(sizeof scale);
  std::memcpy(out.data(), &scale, sizeof scale);
  out.insert(out.end(), stream.begin(), stream.end());
  return out;
}

template <class Write>
Bytes bits(Write&& write) {
  Bytes out(4096);
  BitWriter writer(out.data());
  write(writer);
  out.resize(writer.bytes());
  return out;
}

}  // namespace

TEST(hostile_onebit) {
  const CodecSpec spec = spec_of(CodecKind::onebit);
  CHECK(refused(spec, 9, with_scale(2, Bytes(2)), "other than 1"));
  CHECK(refused(spec, 9, with_scale(-1, Bytes(2)), "negative scale"));
  CHECK(refused(spec, 9, with_scale(1, {std::byte{0}, std::byte{2}}), "behind the last element"));
}

TEST(hostile_topk) {
  const CodecSpec spec = spec_of(CodecKind::topk, 2);  // of 16 elements: 3 low bits in a Rice code
  const auto payload = [](uint32_t count, const Bytes& stream) {
    Bytes out(4 + 8);
    std::memcpy(out.data(), &count, sizeof count);
    out.insert(out.end(), stream.begin(), stream.end());
    return out;
  };
  const auto gaps = [](uint32_t a, uint32_t b) {
    return bits([&](BitWriter& writer) { writer.put_rice(a, 3), writer.put_rice(b, 3); });
  };
  Floats out(16);
  decode(*make_codec(spec, 16, 0, 0), payload(2, gaps(15 - 1, 0)), out);  // 14 and 15: the last that are
  CHECK(refused(spec, 16, payload(3, gaps(0, 0)), "3 elements, expected 2"));
  CHECK(refused(spec, 16, payload(2, gaps(16, 0)), "beyond the last element"));
  CHECK(refused(spec, 16, payload(2, gaps(15, 0)), "beyond the last element"));  // an index cannot repeat
  CHECK(refused(spec, 16, payload(2, gaps(0, 4000)), "beyond the last element"));
  CHECK(refused(spec, 16, payload(2, Bytes(100)), "beyond the last element"));
  CHECK(refused(spec, 16, payload(2, {}), "ends within a code"));
  Bytes padded = gaps(0, 8);  // nine bits
  padded[1] |= std::byte{0x80};
  CHECK(refused(spec, 16, payload(2, padded), "padding"));
}

TEST(hostile_dithering) {
  const CodecSpec spec = spec_of(CodecKind::dithering, 2);  // levels take 2 bits in a dense block
  const auto stream = [](auto&& write) { return with_scale(1, bits(write)); };
  const auto sparse = [&](uint32_t filled, uint32_t gap, uint32_t level) {
    return stream([&](BitWriter& writer) {
      writer.put(1, 1), writer.put(elias_delta(filled + 1));
      writer.put(elias_delta(gap)), writer.put(0, 1), writer.put(elias_delta(level));
    });
  };
  Floats out(4);
  decode(*make_codec(spec, 4, 0, 0), sparse(1, 4, 2), out);
  CHECK_EQ(out[3], 1.0f);
  CHECK(refused(spec, 4, sparse(1, 5, 2), "index beyond the block"));
  CHECK(refused(spec, 4, sparse(1, 4, 3), "level beyond the last"));
  CHECK(refused(spec, 4, sparse(5, 1, 1), "more elements than the block has"));
  CHECK(refused(spec, 4, sparse(2, 1, 1), "bad Elias code"));
  CHECK(refused(spec, 4, with_scale(1, Bytes(9, std::byte{0})), "bytes, expected"));
  CHECK(
      refused(spec, 4, stream([](BitWriter& w) { w.put(0, 1), w.put(7, 3), w.put(0, 9); }), "negative zero"));
  CHECK(
      refused(spec, 4, stream([](BitWriter& w) { w.put(0, 1), w.put(1, 3), w.put(0, 9); }), "negative zero"));
  CHECK(refused(spec, 4, with_scale(-1, Bytes(2)), "negative scale"));
  CHECK(refused(spec, 4, with_scale(0, Bytes(2)), "expected 4"));
  CHECK(refused(spec, 4, with_scale(kInf, Bytes(2)), "expected 4"));
  CHECK(refused(spec, 4, with_scale(1, {}), "ends within a code"));
}

TEST(hostile_blocks) {
  const CodecSpec wide = spec_of(CodecKind::int8), packed = spec_of(CodecKind::int4);
  const auto codes = [](std::initializer_list<int> bytes) {
    Bytes out;
    for (const int byte : bytes) out.push_back(static_cast<std::byte>(byte));
    return out;
  };
  Floats out(3);
  decode(*make_codec(wide, 3, 0, 0), with_scale(0.5f, codes({-127, 0, 127})), out);
  CHECK(out == (Floats{-63.5f, 0, 63.5f}));
  CHECK(refused(wide, 3, with_scale(0.5f, codes({0, -128, 0})), "a code beyond the last"));
  CHECK(refused(wide, 3, with_scale(-0.0f, codes({0, 0, 0})), "negative scale"));
  CHECK(refused(wide, 3, with_scale(0, codes({0, 0, 1})), "codes in a block that has no step"));
  CHECK(refused(wide, 3, with_scale(kInf, codes({0, 0, 0})), "an infinite step"));
  const float other = std::bit_cast<float>(0x7FC00001u);
  CHECK(refused(wide, 3, with_scale(other, codes({0, 0, 0})), "a NaN of another kind"));
  CHECK(refused(wide, 3, with_scale(kQuiet, codes({0, 5, 0})), "codes in a block that has no step"));
  decode(*make_codec(packed, 3, 0, 0), with_scale(2, codes({0x79, 0x0F})), out);
  CHECK(out == (Floats{-14, 14, -2}));
  CHECK(refused(packed, 3, with_scale(2, codes({0x78, 0x00})), "a code beyond the last"));
  CHECK(refused(packed, 3, with_scale(2, codes({0x79, 0x1F})), "behind the last element"));
  CHECK(refused(packed, 3, with_scale(2, codes({0x79})), "bytes, expected 6"));
  // The second block is looked at, too.
  Bytes two(2 * sizeof(float) + 257);
  CHECK(!refused(wide, 257, two, ""));
  two.back() = std::byte{1};
  CHECK(refused(wide, 257, two, "codes in a block that has no step"));
}

TEST(momentum_is_its_definition) {
  for (const Kernels* kernels : kSets) {
    Floats m = samples(1001, 1), g = samples(1001, 2), m0 = m, g0 = g;
    nesterov(m.data(), g.data(), 0.9f, g.size(), *kernels);
    for (size_t i = 0; i < m.size(); ++i) {
      m0[i] = 0.9f * m0[i] + g0[i];
      g0[i] = g0[i] + 0.9f * m0[i];
    }
    CHECK(same(m, m0) && same(g, g0));
  }
}
