// What was overtaken by something more urgent gets its credit back once, and not again when its round is
// over.
#include "aggregator/open_bytes.h"

#include "tests/check.h"

using namespace byteps;

TEST(equal_priorities_overtake_nothing) {
  OpenBytes bytes;
  CHECK_EQ(bytes.open(0, 100), 0u);
  CHECK_EQ(bytes.open(0, 50), 0u);
  CHECK_EQ(bytes.close(0, 100), 100u);
  CHECK_EQ(bytes.close(0, 50), 50u);
}

TEST(the_urgent_overtakes_what_is_less_so_and_each_byte_once) {
  OpenBytes bytes;
  CHECK_EQ(bytes.open(-9, 100), 0u);
  CHECK_EQ(bytes.open(-5, 10), 100u);
  CHECK_EQ(bytes.open(-5, 10), 0u);  // known already
  CHECK_EQ(bytes.open(-1, 1), 20u);
  CHECK_EQ(bytes.open(-9, 100), 0u);   // back to what is less urgent
  CHECK_EQ(bytes.close(-9, 100), 0u);  // the one that was overtaken: its credit is back already
  CHECK_EQ(bytes.close(-9, 100), 100u);
  CHECK_EQ(bytes.close(-5, 10), 0u);
  CHECK_EQ(bytes.close(-5, 10), 0u);
  CHECK_EQ(bytes.close(-1, 1), 1u);
}

TEST(all_credit_comes_back_whatever_the_order) {
  OpenBytes bytes;
  uint64_t back = 0;
  for (int32_t priority = -20; priority < 0; ++priority) back += bytes.open(priority, 7);
  for (int32_t priority = -1; priority >= -20; --priority) back += bytes.close(priority, 7);
  CHECK_EQ(back, 20u * 7);
}

TEST(more_may_be_closed_than_was_opened) {
  OpenBytes bytes;
  CHECK_EQ(bytes.close(3, 10), 10u);  // of a connection that is gone
  bytes.open(3, 5);
  CHECK_EQ(bytes.close(3, 10), 10u);
}
