// What an epoch must be, and what makes two of them have the same contributors.
#include "wire/epoch.h"

#include "tests/check.h"
#include "tests/epochs.h"

using byteps::Epoch;
using byteps::testing::epoch_of;

namespace {

std::string why(const Epoch& epoch) {
  const char* reason = invalid(epoch);
  return reason ? reason : "";
}

}  // namespace

TEST(an_epoch_is_whole) {
  CHECK_EQ(why(epoch_of(1, 1)), "");
  CHECK_EQ(why(epoch_of(1, 4, {0, 0, 1, 1}, 2, 4)), "");
  CHECK_EQ(why(epoch_of(1, 4, {}, 0)), "");  // no servers: a machine on its own
  CHECK(!why({}).empty());
  Epoch broken = epoch_of(1, 2);
  broken.child_of[1] = 2;
  CHECK_EQ(why(broken), "a rank belongs to no child");
  broken = epoch_of(1, 2);
  broken.hosts.pop_back();
  CHECK_EQ(why(broken), "an epoch has the host and the child of every rank");
  broken = epoch_of(1, 2);
  broken.children.push_back("nobody");
  CHECK(!why(broken).empty());
  broken = epoch_of(1, 2);
  broken.servers[0].shards = 0;
  CHECK_EQ(why(broken), "a server has at least one shard");
}

TEST(epochs_are_compared_by_what_they_hold) {
  const Epoch one = epoch_of(1, 4, {0, 0, 1, 1});
  Epoch other = one;
  CHECK(one == other);
  other.number = 2;
  CHECK(!(one == other));
  CHECK(one.has_same_children(other));
  CHECK(!one.has_same_children(epoch_of(1, 4)));
  CHECK(!one.has_same_children(epoch_of(1, 4, {0, 0, 0, 1})));
}
