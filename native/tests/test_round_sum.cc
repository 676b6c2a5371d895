// Sums of compressed contributions: the same as decoding each into a dense array and compressing that.
#include "compress/round_sum.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "compress/sparse_sum.h"
#include "tests/check.h"

using namespace byteps;
using namespace byteps::compress;

namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

Floats gradient(std::mt19937& random, size_t n, bool mostly_zero) {
  std::normal_distribution<float> normal;
  Floats x(n);
  for (float& value : x)
    value = mostly_zero && random() % 50 != 0 ? (random() % 2 == 0 ? 0.0f : -0.0f) : normal(random);
  return x;
}

// One round of so many workers, through a RoundSum and through a dense array.
void compare(const CodecSpec& spec, size_t n, size_t workers, bool mostly_zero, float c) {
  std::mt19937 random(static_cast<uint32_t>(n + workers));
  const auto codec = make_codec(spec, n, 1, 2);
  const auto sum = make_round_sum(spec, n, 1, 2, workers);
  CodecSpec kept = spec;
  kept.feedback = true;  // what the server sends of randomk is not scaled again
  const auto server = make_codec(spec.kind == CodecKind::randomk ? kept : spec, n, 1, 2);
  Floats error(n), dense_error(n);
  for (uint32_t round = 0; round < 3; ++round) {
    Floats dense(n);
    sum->clear();
    for (size_t worker = 0; worker < workers; ++worker) {
      Bytes payload(codec->max_bytes());
      payload.resize(codec->encode(gradient(random, n, mostly_zero).data(), round, payload.data()));
      sum->add(payload.data(), payload.size(), round);
      codec->decode_add(payload.data(), payload.size(), round, dense.data());
    }
    Bytes actual(sum->max_bytes()), expected(server->max_bytes());
    if (c == 0) {
      actual.resize(sum->encode(round, actual.data()));
      expected.resize(server->encode(dense.data(), round, expected.data()));
    } else {
      actual.resize(sum->encode_with_feedback(c, error.data(), round, actual.data()));
      expected.resize(
          server->encode_with_feedback(dense.data(), 1, c, dense_error.data(), round, expected.data()));
    }
    Floats a(n), b(n);
    codec->decode(actual.data(), actual.size(), round, a.data());
    codec->decode(expected.data(), expected.size(), round, b.data());
    CHECK(a == b);  // which zero it is does not matter
    CHECK(error == dense_error);
    CHECK_EQ(actual.size(), expected.size());
  }
}

CodecSpec spec_of(CodecKind kind, double k = 0) {
  CodecSpec spec;
  spec.kind = kind;
  spec.k = k;
  return spec;
}

// Every codec for one size and number of workers, with and without error feedback.
void compare_all(size_t n, size_t workers) {
  for (const bool mostly_zero : {false, true}) {
    for (const float c : {0.0f, 1.0f, 0.5f}) {
      for (const double k : {0.001, 0.01, 0.2, 1.0, 7.0, 1e6}) {
        compare(spec_of(CodecKind::topk, k), n, workers, mostly_zero, c);
        compare(spec_of(CodecKind::randomk, k), n, workers, mostly_zero, c);
      }
      compare(spec_of(CodecKind::onebit), n, workers, mostly_zero, c);
      compare(spec_of(CodecKind::dithering, 3), n, workers, mostly_zero, c);
      compare(spec_of(CodecKind::fp16), n, workers, mostly_zero, c);
      compare(spec_of(CodecKind::int8), n, workers, mostly_zero, c);
      compare(spec_of(CodecKind::int4), n, workers, mostly_zero, c);
    }
  }
}

}  // namespace

TEST(a_sum_is_what_a_dense_sum_would_be) {
  for (const size_t n : {size_t{1}, size_t{10}, size_t{500}})
    for (const size_t workers : {size_t{1}, size_t{2}, size_t{5}, size_t{20}}) compare_all(n, workers);
  compare_all(10000, 3);  // once across the limits of blocks; more takes minutes under a sanitizer
}

TEST(a_topk_sum_becomes_dense_when_it_has_grown) {
  constexpr size_t kN = 8000;
  const CodecSpec spec = spec_of(CodecKind::topk, 0.05);
  SparseSum sum(spec, kN, 4, best_kernels());
  const auto codec = make_codec(spec, kN, 1, 2);
  std::mt19937 random(5);
  for (int worker = 0; worker < 4; ++worker) {
    Bytes payload(codec->max_bytes());
    payload.resize(codec->encode(gradient(random, kN, false).data(), 0, payload.data()));
    sum.add(payload.data(), payload.size(), 0);
    CHECK_EQ(sum.is_dense(), worker >= 2);  // an eighth of 8000 has room for two of 400
  }
  sum.clear();
  CHECK(!sum.is_dense());
}

TEST(a_bad_contribution_leaves_a_sparse_sum_as_it_was) {
  const CodecSpec spec = spec_of(CodecKind::topk, 3);
  SparseSum sum(spec, 100, 2, best_kernels());
  const auto codec = make_codec(spec, 100, 1, 2);
  std::mt19937 random(6);
  Bytes payload(codec->max_bytes());
  payload.resize(codec->encode(gradient(random, 100, false).data(), 0, payload.data()));
  sum.add(payload.data(), payload.size(), 0);
  CHECK_THROWS(sum.add(payload.data(), payload.size() - 1, 0), WireError);
  Bytes out(sum.max_bytes());
  out.resize(sum.encode(0, out.data()));
  CHECK(out == payload);
}
