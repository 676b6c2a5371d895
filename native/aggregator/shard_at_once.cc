// Keys whose children do not wait for each other: a contribution is answered at once, to its sender.
#include "aggregator/shard.h"
#include "base/error.h"

namespace byteps {

void Shard::contribute_at_once(KeyState& key, uint16_t rank, const Header& header,
                               Contribution contribution) {
  try {
    update_at_once(key, rank, header, std::move(contribution));
  } catch (const std::bad_alloc& lack) {
    no_memory(rank, header, lack.what());
  }
}

void Shard::update_at_once(KeyState& key, uint16_t rank, const Header& header, Contribution contribution) {
  const Terms terms = terms_of(header);
  const uint16_t child = contribution.child;
  key.lone_rounds.make_room(children());
  const bool again = key.lone_rounds.taken(child, header.round);
  if (again) ShardCounters::bump(counters_.duplicates);
  const bool has_value = key.rule->result_elements() != nullptr;
  if (terms.broadcast && terms.root != child) {
    if (!has_value) return key.lone_rounds.wait(child, {rank, header.round});
  } else if (!again) {
    add_at_once(key, rank, header, std::move(contribution));
  } else if (!has_value) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + epoch_->ranks[rank] +
                    " has come before as an empty part of a broadcast, and nobody has set its value yet");
  }
  key.lone_rounds.take(child, header.round);
  send_result(key, {rank}, header);
  Header to = header;
  key.lone_rounds.release([&](LoneRounds::Waiting waiting) {
    to.round = waiting.round;
    send_result(key, {waiting.rank}, to);
  });
}

void Shard::add_at_once(KeyState& key, uint16_t rank, const Header& header, Contribution contribution) {
  try {
    key.rule->add(std::move(contribution), terms_of(header), counts(), pool_);
  } catch (const WireError& error) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + epoch_->ranks[rank] + ": " +
                    error.what());
  }
  sample_result(key, "stored", header.round);
}

}  // namespace byteps
