// The rule that sums elements: who is counted, how it is rounded and divided, what it refuses.
#include "aggregator/update/sum.h"

#include "tests/update_samples.h"

using namespace byteps;
using namespace byteps::testing;

namespace {

using Halves = std::vector<uint16_t>;
using Floats = std::vector<float>;

Halves halves(std::vector<float> values) {
  Halves made;
  for (const float value : values) made.push_back(f32_to_f16(value));
  return made;
}

template <class T>
std::vector<T> shares(uint16_t child, size_t n) {
  return std::vector<T>(n, static_cast<T>(share_of(child)));
}

template <class T>
void check_sums(DType dtype, uint16_t children) {
  BufferPool pool;
  SumRule rule(key_of(5, dtype));
  const Counts counts{children, children};
  for (int round = 0; round < 3; ++round) {
    double sum = 0;
    for (uint16_t child = 0; child < children; ++child) {
      rule.add(plain(pool, child, shares<T>(child, 5)), {}, counts, pool);
      sum += share_of(child);
    }
    rule.finish({}, counts, pool);
    const Result result = rule.result_for(0, {});
    CHECK(result.lasts && result.codec == 0);
    CHECK(values_of<T>(result) == std::vector<T>(5, static_cast<T>(sum)));
  }
}

}  // namespace

TEST(every_child_counts_once_in_every_type) {
  for (const uint16_t children : {1, 2, 3, 4}) {
    check_sums<float>(DType::f32, children);
    check_sums<double>(DType::f64, children);
    check_sums<int32_t>(DType::i32, children);
    check_sums<int64_t>(DType::i64, children);
    check_sums<uint8_t>(DType::u8, children);
  }
  for (const uint16_t children : {1, 2, 3}) check_sums<int8_t>(DType::i8, children);
}

TEST(children_are_added_in_the_order_of_the_calls) {
  BufferPool pool;
  SumRule rule(key_of(1));
  // (1e8 + 1) - 1e8 is 0 in float32, (1e8 - 1e8) + 1 is 1.
  for (const float value : {1e8f, 1.0f, -1e8f}) rule.add(plain(pool, 0, Floats{value}), {}, {3, 3}, pool);
  rule.finish({}, {3, 3}, pool);
  CHECK(values_of<float>(rule.result_for(0, {})) == Floats{0});
}

TEST(the_first_contribution_becomes_the_sum_without_a_copy) {
  BufferPool pool;
  SumRule rule(key_of(4));
  Contribution first = plain(pool, 0, Floats{1, 1, 1, 1});
  const std::byte* memory = first.bytes.data();
  rule.add(std::move(first), {}, {2, 2}, pool);
  CHECK_EQ(rule.sum_bytes(), size_t{16});
  CHECK_EQ(rule.first_bytes({}), size_t{16});
  const size_t allocated = pool.allocated_bytes();
  rule.add(plain(pool, 1, Floats{4, 4, 4, 4}), {}, {2, 2}, pool);
  rule.finish({}, {2, 2}, pool);
  CHECK(rule.result_elements() == memory);
  CHECK_EQ(rule.sum_bytes(), size_t{0});
  CHECK(pool.allocated_bytes() <= 2 * allocated);  // the two contributions and nothing else
}

TEST(averages_divide_by_the_ranks_and_not_by_the_children) {
  for (const uint16_t children : {1, 2, 3}) {
    BufferPool pool;
    SumRule rule(key_of(2));
    const Counts counts{children, 8};
    const Terms average{.average = true};
    double sum = 0;
    for (uint16_t child = 0; child < children; ++child) {
      rule.add(plain(pool, child, shares<float>(child, 2)), average, counts, pool);
      sum += share_of(child);
    }
    rule.finish(average, counts, pool);
    CHECK(values_of<float>(rule.result_for(1, average)) == Floats(2, static_cast<float>(sum / 8)));
  }
}

TEST(half_types_are_rounded_once) {
  BufferPool pool;
  SumRule rule(key_of(1, DType::f16));
  // Between 2048 and 4096 a float16 is a whole even number: each 1 alone would be lost.
  const std::vector<float> values = {2048, 1, 1};
  for (uint16_t child = 0; child < 3; ++child) {
    rule.add(plain(pool, child, halves({values[child]})), {}, {3, 3}, pool);
  }
  CHECK_EQ(rule.sum_bytes(), size_t{4});  // float32
  rule.finish({}, {3, 3}, pool);
  CHECK(values_of<uint16_t>(rule.result_for(0, {})) == halves({2050}));
}

TEST(an_average_of_half_types_cannot_overflow) {
  for (const uint16_t children : {2, 3}) {
    BufferPool pool;
    SumRule rule(key_of(1, DType::f16));
    const Terms average{.average = true};
    for (uint16_t child = 0; child < children; ++child) {
      rule.add(plain(pool, child, halves({60000})), average, {children, children}, pool);
    }
    rule.finish(average, {children, children}, pool);
    CHECK(values_of<uint16_t>(rule.result_for(0, average)) == halves({60000}));
  }
}

TEST(sums_of_machines_are_wide_and_meet_narrow_ones) {
  for (const bool wide_first : {true, false}) {
    BufferPool pool;
    const KeyInfo key = key_of(2, DType::f16);
    SumRule rule(key);
    Header header = push_of(key);
    header.dtype = static_cast<uint8_t>(DType::f32);
    header.length = 2 * key.length;
    const Shape shape = shape_of(header, key, rule.form(), {1, kName}, 2);
    CHECK(shape.wide && shape.bytes == 8);
    // 2049 and 1 would be 2048 and 1 in float16.
    const Terms average{.average = true};
    for (const bool wide : {wide_first, !wide_first}) {
      Contribution contribution =
          wide ? plain(pool, 0, Floats{2049, 3}, true) : plain(pool, 1, halves({1, 4}));
      rule.add(std::move(contribution), average, {2, 2}, pool);
    }
    rule.finish(average, {2, 2}, pool);
    CHECK(values_of<uint16_t>(rule.result_for(0, average)) == halves({1025, 3.5f}));
  }
}

TEST(a_broadcast_is_the_roots_bytes_which_the_root_does_not_get_again) {
  BufferPool pool;
  SumRule rule(key_of(2));
  const Terms terms{.broadcast = true, .root = 1};
  rule.add({.child = 0}, terms, {3, 3}, pool);
  rule.add(plain(pool, 1, Floats{7, 8}), terms, {3, 3}, pool);
  rule.add({.child = 2}, terms, {3, 3}, pool);
  rule.finish(terms, {3, 3}, pool);
  CHECK(!rule.result_for(1, terms).bytes);
  for (const uint16_t child : {0, 2}) {
    CHECK(values_of<float>(rule.result_for(child, terms)) == (Floats{7, 8}));
  }
}

TEST(what_was_dropped_leaves_nothing_but_the_result_before) {
  BufferPool pool;
  SumRule rule(key_of(1, DType::f16));
  CHECK(!rule.result_elements());
  rule.add(plain(pool, 0, halves({5})), {}, {1, 1}, pool);
  rule.finish({}, {1, 1}, pool);
  for (uint16_t child : {0, 1}) rule.add(plain(pool, child, Floats{100}, true), {}, {3, 3}, pool);
  rule.drop();
  CHECK_EQ(rule.sum_bytes(), size_t{0});
  CHECK(values_of<uint16_t>(rule.result_for(0, {})) == halves({5}));
  const Terms broadcast{.broadcast = true, .root = 0};
  rule.add(plain(pool, 0, halves({6})), broadcast, {3, 3}, pool);
  rule.finish(broadcast, {3, 3}, pool);
  CHECK(values_of<uint16_t>(rule.result_for(1, broadcast)) == halves({6}));
}

TEST(what_is_not_a_contribution_is_refused_with_its_reason) {
  const KeyInfo key = key_of(2);
  const SumRule rule(key);
  CHECK_EQ(refusal(rule, key, push_of(key)), std::string());
  Header header = push_of(key);
  header.length = 12;
  CHECK_EQ(refusal(rule, key, header), std::string("PUSH: t1: 12 bytes, expected 8"));
  header = push_of(key, kFlagByAddress);
  CHECK_EQ(refusal(rule, key, header), std::string("PUSH: t1: 8 bytes, expected 24"));
  header = push_of(key);
  header.codec = 2;
  CHECK_EQ(refusal(rule, key, header),
           std::string("PUSH: t1 (key 1) round 0 from worker 1: codec 2, expected 0"));
  header = push_of(key);
  header.dtype = static_cast<uint8_t>(DType::f16);
  CHECK_EQ(refusal(rule, key, header), std::string("PUSH: t1 is float32, not float16"));
  CHECK_EQ(refusal(rule, key, push_of(key, kFlagBroadcast, 2)),
           std::string("PUSH: broadcast from a child that does not exist"));
  CHECK_EQ(refusal(rule, key, push_of(key, kFlagBroadcast | kFlagAverage, 1)),
           std::string("PUSH: a broadcast that is to be divided"));
  CHECK_EQ(refusal(rule, key, push_of(key, kFlagBroadcast, 1)), std::string());
  CHECK_EQ(refusal(rule, key, push_of(key, kFlagBroadcast, 0)),
           std::string("PUSH: t1: 8 bytes, expected 0"));  // another child's
}

TEST(only_half_types_are_wide_and_no_broadcast_is) {
  for (const DType dtype : {DType::f64, DType::i32}) {
    const KeyInfo key = key_of(2, dtype);
    Header header = push_of(key);
    header.dtype = static_cast<uint8_t>(DType::f32);
    CHECK_EQ(refusal(SumRule(key), key, header),
             std::string("PUSH: t1 is ") + name_of(dtype) + ", not float32");
  }
  const KeyInfo key = key_of(2, DType::bf16);
  Header header = push_of(key, kFlagBroadcast, 1);
  header.dtype = static_cast<uint8_t>(DType::f32);
  CHECK_EQ(refusal(SumRule(key), key, header), std::string("PUSH: t1 is bfloat16, not float32"));
}
