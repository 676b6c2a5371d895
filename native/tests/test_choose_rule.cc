// Which rule a key gets: by its tensor, and by the mode of the server.
#include "aggregator/choose_rule.h"

#include "tests/update_samples.h"

using namespace byteps;
using namespace byteps::testing;

TEST(the_rule_follows_the_tensor_and_the_mode) {
  const KeyInfo plain_key = key_of(4), compressed_key = key_of(4, DType::f32, compress::DeclaredCodec{});
  AggregatorSettings settings;
  CHECK(choose_rule(plain_key, settings)->is_collective());
  CHECK_EQ(choose_rule(plain_key, settings)->form().codec, 0);
  CHECK(choose_rule(compressed_key, settings)->is_collective());
  CHECK_EQ(choose_rule(compressed_key, settings)->form().codec, 1);
  settings.asynchronous = true;
  CHECK(!choose_rule(plain_key, settings)->is_collective());
  CHECK(!choose_rule(compressed_key, settings)->is_collective());
  CHECK_EQ(choose_rule(compressed_key, settings)->form().codec, 1);
}
