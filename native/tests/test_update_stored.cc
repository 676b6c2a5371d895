// The rule of asynchronous mode: a value that each contribution changes at once.
#include "aggregator/update/stored.h"

#include "tests/update_samples.h"

using namespace byteps;
using namespace byteps::testing;
using compress::CodecKind;

namespace {

using Floats = std::vector<float>;
constexpr Counts kTwo{2, 2};
const Terms kSum{};

}  // namespace

TEST(contributions_change_the_value_at_once) {
  BufferPool pool;
  StoredRule rule(key_of(2));
  CHECK(!rule.is_collective() && !rule.result_elements());
  float sum = 0;
  for (const uint16_t child : {0, 1, 1, 0}) {
    rule.add(plain(pool, child, Floats(2, static_cast<float>(share_of(child)))), kSum, kTwo, pool);
    sum += static_cast<float>(share_of(child));
    CHECK(values_of<float>(rule.result_for(child, kSum)) == Floats(2, sum));
  }
  CHECK(rule.result_elements() != nullptr);
}

TEST(a_value_on_its_way_does_not_change) {
  BufferPool pool;
  StoredRule rule(key_of(2));
  rule.add(plain(pool, 0, Floats{1, 1}), kSum, kTwo, pool);
  const Result before = rule.result_for(0, kSum);
  CHECK(!before.lasts);  // so it never goes by address
  rule.add(plain(pool, 1, Floats{4, 4}), kSum, kTwo, pool);
  CHECK(values_of<float>(before) == (Floats{1, 1}));
  CHECK(values_of<float>(rule.result_for(1, kSum)) == (Floats{5, 5}));
}

TEST(a_broadcast_sets_the_value_and_the_root_gets_it_too) {
  BufferPool pool;
  StoredRule rule(key_of(2));
  rule.add(plain(pool, 0, Floats{1, 1}), kSum, kTwo, pool);
  const Terms broadcast{.broadcast = true, .root = 1};
  rule.add(plain(pool, 1, Floats{7, 8}), broadcast, kTwo, pool);
  for (const uint16_t child : {0, 1}) {
    CHECK(values_of<float>(rule.result_for(child, broadcast)) == (Floats{7, 8}));
  }
}

TEST(an_average_is_a_sum) {
  BufferPool pool;
  StoredRule rule(key_of(1));
  for (const float value : {1.0f, 4.0f}) {
    rule.add(plain(pool, 0, Floats{value}), {.average = true}, kTwo, pool);
  }
  CHECK(values_of<float>(rule.result_for(0, kSum)) == Floats{5});
}

TEST(compressed_contributions_change_a_value_that_is_whole) {
  BufferPool pool;
  StoredRule rule(key_of(4, DType::f32, codec_of(CodecKind::onebit)));
  CHECK(rule.prepare({.bytes = 5, .compressed = true}, kTwo));
  CHECK(!rule.prepare({.bytes = 5, .compressed = true}, kTwo));
  rule.add(compressed(pool, 0, signs(1, 0b0001)), kSum, kTwo, pool);
  const Result before = rule.result_for(0, kSum);
  CHECK(before.codec == 0 && values_of<float>(before) == (Floats{-1, 1, 1, 1}));
  rule.add(compressed(pool, 1, signs(1, 0b0010)), kSum, kTwo, pool);
  CHECK(values_of<float>(rule.result_for(1, kSum)) == (Floats{0, 0, 2, 2}));
  CHECK(values_of<float>(before) == (Floats{-1, 1, 1, 1}));
}

TEST(compressed_contributions_are_added_in_the_tensors_own_type) {
  BufferPool pool;
  StoredRule wide(key_of(2, DType::f64, codec_of(CodecKind::onebit)));
  wide.prepare({.bytes = 5, .compressed = true}, kTwo);
  const double base = 9007199254740990.0;  // no float32
  wide.add(plain(pool, 0, std::vector<double>{base, base}), {.broadcast = true}, kTwo, pool);
  wide.add(compressed(pool, 0, signs(1, 0b01)), kSum, kTwo, pool);
  CHECK(values_of<double>(wide.result_for(0, kSum)) == (std::vector<double>{base - 1, base + 1}));
  StoredRule half(key_of(2, DType::f16, codec_of(CodecKind::onebit)));
  half.prepare({.bytes = 5, .compressed = true}, kTwo);
  for (int i = 0; i < 3; ++i) half.add(compressed(pool, 0, signs(1, 0b10)), kSum, kTwo, pool);
  CHECK(values_of<uint16_t>(half.result_for(0, kSum)) ==
        (std::vector<uint16_t>{f32_to_f16(3), f32_to_f16(-3)}));
}

TEST(a_bad_payload_leaves_the_value_as_it_was) {
  BufferPool pool;
  StoredRule rule(key_of(4, DType::f32, codec_of(CodecKind::onebit)));
  rule.prepare({.bytes = 5, .compressed = true}, kTwo);
  CHECK_THROWS(rule.add(compressed(pool, 0, signs(2, 0)), kSum, kTwo, pool), WireError);
  CHECK(!rule.result_elements());
  rule.add(compressed(pool, 0, signs(1, 0)), kSum, kTwo, pool);
  CHECK_THROWS(rule.add(compressed(pool, 0, signs(1, 0b10000)), kSum, kTwo, pool), WireError);
  CHECK(values_of<float>(rule.result_for(0, kSum)) == (Floats{1, 1, 1, 1}));
}

TEST(half_types_come_as_they_are) {
  const KeyInfo key = key_of(2, DType::f16);
  Header header = push_of(key);
  header.dtype = static_cast<uint8_t>(DType::f32);
  header.length = 8;
  CHECK_EQ(refusal(StoredRule(key), key, header), std::string("PUSH: t1 is float16, not float32"));
}

TEST(other_lengths_and_codecs_of_a_stored_value_are_refused) {
  const KeyInfo key = key_of(4, DType::f32, codec_of(CodecKind::onebit));
  StoredRule rule(key);
  rule.prepare({.bytes = 5, .compressed = true}, kTwo);
  const std::string origin = "PUSH: t1 (key 1) round 0 from worker 1: ";
  CHECK_EQ(refusal(rule, key, compressed_push_of(key, 5)), std::string());
  CHECK_EQ(refusal(rule, key, compressed_push_of(key, 6)), origin + "6 compressed bytes, expected 1 to 5");
  CHECK_EQ(refusal(rule, key, push_of(key)), origin + "codec 0, expected 1");
  CHECK_EQ(refusal(rule, key, push_of(key, kFlagBroadcast, 1)), std::string());
  const KeyInfo plain_key = key_of(4);
  Header header = push_of(plain_key);
  header.length = 4;
  CHECK_EQ(refusal(StoredRule(plain_key), plain_key, header), std::string("PUSH: t1: 4 bytes, expected 16"));
}
