// What a server believes of tensors: the scheduler's word, and which pieces belong to which of its shards.
#include "aggregator/tensor/tensor_table.h"

#include "tests/check.h"

using namespace byteps;

namespace {

TensorInfo tensor() {
  // Three partitions of two pieces each; the first and the last are here.
  return {7, "t", DType::f32, {3 * 8192, 8192, false, 4096}, {{1, {0, -1}}, {1, {1}}}};
}

}  // namespace

TEST(pieces_go_round_the_shards_beginning_with_the_one_of_their_partition) {
  const TensorInfo t = tensor();
  const bool expected[2][6] = {{true, false, false, false, false, true},
                               {false, true, false, false, true, false}};
  for (unsigned shard : {0u, 1u}) {
    for (uint32_t piece = 0; piece < 6; ++piece) CHECK_EQ(t.is_on(piece, shard, 2), expected[shard][piece]);
  }
  CHECK(!t.is_on(6, 0, 2));
  CHECK(!t.is_on(UINT32_MAX, 0, 1));
}

TEST(places_that_repeat_are_said_once) {
  // 100,000 partitions, every second one here, and one more that is not.
  const uint64_t bytes = 100'000 * uint64_t{8192} + 4096;
  const TensorInfo t{7, "t", DType::f32, {bytes, 8192, false, 8192}, {{50'000, {-1, 0}}, {1, {-1}}}};
  CHECK(!invalid(t, 1));
  CHECK(!t.is_on(99'998, 0, 1));
  CHECK(t.is_on(99'999, 0, 1));
  CHECK(!t.is_on(100'000, 0, 1));
  CHECK_EQ(t.own_bytes(), 50'000 * uint64_t{8192});
}

TEST(what_stays_from_round_to_round) {
  TensorInfo t = tensor();
  CHECK_EQ(t.own_bytes(), 2u * 8192);
  t.cut.tensor_bytes -= 4096 + 8;
  CHECK_EQ(t.own_bytes(), 8192u + 4088);
  CHECK_EQ(t.lasting_bytes(800), 800u);
  t.dtype = DType::f16;
  t.codec.emplace();
  CHECK_EQ(t.lasting_bytes(800), 1600u);  // a sum in float32
  t.codec->spec.feedback = true;
  CHECK_EQ(t.lasting_bytes(800), 3200u);
}

TEST(what_cannot_be_is_named) {
  const auto reason = [](auto change) {
    TensorInfo t = tensor();
    change(t);
    const char* found = invalid(t, 2);
    return std::string(found ? found : "");
  };
  CHECK_EQ(reason([](TensorInfo&) {}), std::string());
  CHECK_EQ(reason([](TensorInfo& t) { t.cut.partition_bytes = 12; }),
           std::string("partition size is not a multiple of 8"));
  CHECK_EQ(reason([](TensorInfo& t) { t.cut.tensor_bytes += 2; }),
           std::string("not a whole number of elements"));
  const std::string places = "not one place for each of its partitions";
  CHECK_EQ(reason([](TensorInfo& t) { t.runs.pop_back(); }), places);
  CHECK_EQ(reason([](TensorInfo& t) { t.runs.push_back({1, {0}}); }), places);
  CHECK_EQ(reason([](TensorInfo& t) { t.runs[0].times = UINT32_MAX; }), places);
  CHECK_EQ(reason([](TensorInfo& t) { t.runs[1].shards.clear(); }), std::string("a run without places"));
  for (const int32_t shard : {2, -2}) {
    CHECK_EQ(reason([&](TensorInfo& t) { t.runs[0].shards[0] = shard; }),
             std::string("a partition on a shard that does not exist"));
  }
  CHECK_EQ(reason([](TensorInfo& t) {
             t.dtype = DType::i32;
             t.codec.emplace();
           }),
           std::string("a codec for a type that is no floating point"));
}

TEST(a_number_means_one_thing_until_it_is_forgotten) {
  TensorTable table;
  table.declare(tensor());
  table.declare(tensor());
  TensorInfo other = tensor();
  other.name = "u";
  CHECK_THROWS(table.declare(other), std::invalid_argument);
  table.forget({7, 8});
  CHECK(!table.find(7));
  table.declare(other);
  CHECK_EQ(table.find(7)->name, std::string("u"));
}

TEST(what_is_to_come_is_what_nobody_has_pushed_yet) {
  TensorTable table;
  table.declare(tensor());
  table.declare(tensor());
  CHECK_EQ(table.coming_bytes(), 2u * 8192);
  const auto found = table.find(7);
  table.begun(*found, 4096);
  CHECK_EQ(table.coming_bytes(), 3u * 4096);
  table.forget({7});
  CHECK_EQ(table.coming_bytes(), 0u);
  table.begun(*found, 4096);  // by a shard that has not heard yet
  CHECK_EQ(table.coming_bytes(), 0u);
}
