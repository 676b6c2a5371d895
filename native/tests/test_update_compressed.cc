// The rule for compressed contributions: the sum goes back compressed, and what that loses is kept.
#include "aggregator/update/compressed.h"

#include "tests/update_samples.h"
#include "wire/limits.h"

using namespace byteps;
using namespace byteps::testing;
using compress::CodecKind;
using compress::DeclaredCodec;
using compress::Feedback;

namespace {

using Payload = std::vector<std::byte>;
constexpr uint8_t kOneBit = 1, kTopK = 2;

// A round of so many children, all with this step.
struct Rounds {
  Rounds(const DeclaredCodec& codec, size_t elements, uint16_t children, DType dtype = DType::f32)
      : key(key_of(elements, dtype, codec)), rule(key), counts{children, children} {
    rule.prepare({.bytes = 1, .compressed = true}, counts);
  }
  void add(uint16_t child, const Payload& payload, CodecTerms with = {}) {
    rule.add(compressed(pool, child, payload, with), {.step = with.step}, counts, pool);
  }
  Payload finish(uint32_t step = 0) {
    rule.finish({.step = step}, counts, pool);
    rule.drop();  // as a shard does when a round is over
    const Result result = rule.result_for(0, {.step = step});
    CHECK_EQ(result.codec, static_cast<uint8_t>(key.tensor->codec->spec.kind));
    CHECK(result.lasts && !rule.result_elements());
    return values_of<std::byte>(result);
  }

  const KeyInfo key;
  BufferPool pool;
  CompressedRule rule;
  const Counts counts;
};

// The largest of four elements, as topk writes it: k, a value, one Rice code.
Payload largest(float value, uint8_t code) {
  Payload payload(9);
  const uint32_t count = 1;
  std::memcpy(payload.data(), &count, 4);
  std::memcpy(payload.data() + 4, &value, 4);
  payload[8] = std::byte{code};
  return payload;
}

}  // namespace

TEST(the_sum_goes_back_compressed_and_the_error_is_kept) {
  DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::vanilla);
  codec.spec.scaling = true;
  Rounds rounds(codec, 4, 2);
  // Decoded: {1, 1, -1, 1} + {-3, 3, -3, 3} = {-2, 4, -4, 4}: scale 3.5, and {1.5, 0.5, -0.5, 0.5} is left.
  rounds.add(0, signs(1, 0b0100));
  rounds.add(1, signs(3, 0b0101));
  CHECK(rounds.finish() == signs(3.5f, 0b0101));
  // {2, 2, 2, 2} and what was left is {3.5, 2.5, 1.5, 2.5}.
  for (const uint16_t child : {0, 1}) rounds.add(child, signs(1, 0));
  CHECK(rounds.finish() == signs(2.5f, 0));
}

TEST(the_first_learning_rate_of_a_round_corrects_the_error) {
  DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::corrected);
  codec.spec.scaling = true;
  Rounds rounds(codec, 4, 2);
  // {-2, 4, -4, 4} at a rate of 0.5: {1.5, 0.5, -0.5, 0.5} is left.
  rounds.add(0, signs(1, 0b0100), {0, 0.5f});
  rounds.add(1, signs(3, 0b0101), {0, 8.0f});
  CHECK(rounds.finish() == signs(3.5f, 0b0101));
  // At 0.25 twice of it counts: {2, 2, 2, 2} + {3, 1, -1, 1} = {5, 3, 1, 3}.
  rounds.add(0, signs(1, 0), {1, 0.25f});
  rounds.add(1, signs(1, 0), {1, 8.0f});
  CHECK(rounds.finish(1) == signs(3, 0));
}

TEST(each_child_counts_once) {
  for (const uint16_t children : {1, 2, 3, 4}) {
    Rounds rounds(codec_of(CodecKind::topk), 4, children);
    float sum = 0;
    for (uint16_t child = 0; child < children; ++child) {
      rounds.add(child, largest(static_cast<float>(share_of(child)), 0b0001));  // element 0
      sum += static_cast<float>(share_of(child));
    }
    CHECK(rounds.finish() == largest(sum, 0b0001));
  }
}

TEST(a_bad_payload_is_named_and_the_error_stays_as_it_was) {
  DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::vanilla);
  codec.spec.scaling = true;
  Rounds rounds(codec, 4, 2);
  rounds.add(0, signs(1, 0b0100));
  rounds.add(1, signs(3, 0b0101));
  CHECK(rounds.finish() == signs(3.5f, 0b0101));
  for (const Payload& bad : {signs(-1, 0), signs(1, 0b10000), Payload(1)}) {
    rounds.add(0, signs(100, 0));
    CHECK_THROWS(rounds.add(1, bad), WireError);
    rounds.rule.drop();
    CHECK(values_of<std::byte>(rounds.rule.result_for(1, {})) == signs(3.5f, 0b0101));
  }
  for (const uint16_t child : {0, 1}) rounds.add(child, signs(1, 0));
  CHECK(rounds.finish() == signs(2.5f, 0));
}

TEST(a_broadcast_is_plain_and_leaves_the_error_alone) {
  DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::vanilla);
  codec.spec.scaling = true;
  Rounds rounds(codec, 4, 2);
  rounds.add(0, signs(1, 0b0100));
  rounds.add(1, signs(3, 0b0101));
  CHECK(rounds.finish() == signs(3.5f, 0b0101));
  const Terms terms{.broadcast = true, .root = 0};
  const std::vector<float> values = {1.25f, 2, 3, 4};
  CHECK_EQ(refusal(rounds.rule, rounds.key, push_of(rounds.key, kFlagBroadcast, 1)), std::string());
  rounds.rule.add(plain(rounds.pool, 0, values), terms, rounds.counts, rounds.pool);
  CHECK_EQ(rounds.rule.sum_bytes(), size_t{16});
  rounds.rule.add({.child = 1}, terms, rounds.counts, rounds.pool);
  rounds.rule.finish(terms, rounds.counts, rounds.pool);
  rounds.rule.drop();
  CHECK(!rounds.rule.result_for(0, terms).bytes);
  const Result result = rounds.rule.result_for(1, terms);
  CHECK(result.codec == 0 && values_of<float>(result) == values && rounds.rule.result_elements());
  for (const uint16_t child : {0, 1}) rounds.add(child, signs(1, 0));
  CHECK(rounds.finish() == signs(2.5f, 0));
}

TEST(a_compressed_sum_keeps_no_contribution_and_a_broadcast_one) {
  Rounds rounds(codec_of(CodecKind::onebit), 4, 2);
  CHECK_EQ(rounds.rule.first_bytes({}), size_t{0});
  CHECK_EQ(rounds.rule.first_bytes({.broadcast = true}), size_t{16});
  rounds.add(0, signs(1, 0));
  CHECK_EQ(rounds.rule.sum_bytes(), size_t{0});
}

TEST(memory_is_taken_once_and_only_for_compressed_contributions) {
  CompressedRule rule(key_of(4, DType::f32, codec_of(CodecKind::onebit)));
  CHECK(!rule.prepare({.bytes = 16}, {2, 2}));
  CHECK_EQ(rule.form().most_bytes, limits::kMaxPushBytes);
  CHECK(rule.prepare({.bytes = 5, .compressed = true}, {2, 2}));
  CHECK_EQ(rule.form().most_bytes, size_t{5});
  CHECK(!rule.prepare({.bytes = 5, .compressed = true}, {2, 2}));
}

TEST(other_lengths_and_codecs_are_refused_with_their_reason) {
  Rounds rounds(codec_of(CodecKind::onebit), 4, 2);
  const auto told = [&](const Header& header) { return refusal(rounds.rule, rounds.key, header); };
  const std::string origin = "PUSH: t1 (key 1) round 0 from worker 1: ";
  CHECK_EQ(told(compressed_push_of(rounds.key, 5)), std::string());
  CHECK_EQ(told(compressed_push_of(rounds.key, 0)), origin + "0 compressed bytes, expected 1 to 5");
  CHECK_EQ(told(compressed_push_of(rounds.key, 6)), origin + "6 compressed bytes, expected 1 to 5");
  Header header = compressed_push_of(rounds.key, 5);
  header.codec = kTopK;
  CHECK_EQ(told(header), origin + "codec 2, expected 1");
  CHECK_EQ(told(push_of(rounds.key)), origin + "codec 0, expected 1");
  header = push_of(rounds.key, kFlagBroadcast, 1);
  header.codec = kOneBit;
  CHECK_EQ(told(header), origin + "codec 1, expected 0");
  header = compressed_push_of(rounds.key, 5);
  header.flags = kFlagByAddress;
  header.detail = 4;
  CHECK_EQ(told(header), std::string("PUSH: t1: 5 bytes, expected 24"));
}

TEST(before_anything_is_known_of_its_codec_only_the_limit_of_a_push_counts) {
  const KeyInfo key = key_of(4, DType::f32, codec_of(CodecKind::onebit));
  const CompressedRule rule(key);
  CHECK_EQ(refusal(rule, key, compressed_push_of(key, 6)), std::string());
  CHECK_EQ(refusal(rule, key, compressed_push_of(key, limits::kMaxPushBytes + 1)),
           "PUSH: t1 (key 1) round 0 from worker 1: " + std::to_string(limits::kMaxPushBytes + 1) +
               " compressed bytes, expected 1 to " + std::to_string(limits::kMaxPushBytes));
}

TEST(a_codec_that_cannot_be_is_the_fault_of_who_declared_it) {
  DeclaredCodec codec = codec_of(CodecKind::topk);
  codec.spec.k = -1;
  CompressedRule rule(key_of(4, DType::f32, codec));
  try {
    rule.prepare({.bytes = 5, .compressed = true}, {2, 2});
    CHECK(false);
  } catch (const WireError& error) {
    CHECK(std::string(error.what()).starts_with("PUSH: t1: "));
  }
}
