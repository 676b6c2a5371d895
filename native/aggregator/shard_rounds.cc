// From the first contribution to a round to its result.
#include "aggregator/shard.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/tuning.h"
#include "observe/ring.h"

namespace byteps {

void Shard::open_round(KeyState& key, const Terms& terms) {
  key.terms = terms;
  key.opened_ns = now_ns();
  key.asks = false;
  key.stall_told = false;
  ++open_rounds_;
}

void Shard::keep(KeyState& key, size_t bytes) {
  extra_bytes_ -= key.extra_bytes(key.kept_bytes);
  extra_bytes_ += key.extra_bytes(bytes);
  key.kept_bytes = bytes;
}

void Shard::add_turn(KeyState& key, uint16_t child) {
  Contribution contribution = std::exchange(key.held[child], {});
  const size_t others = key.kept_bytes - contribution.shape.bytes - key.rule->sum_bytes();
  try {
    key.rule->add(std::move(contribution), key.terms, counts(), pool_);
  } catch (const WireError& error) {
    // Found out when its turn has come, perhaps while another child's frame is read: it is nobody's
    // connection that ends, but a round that nobody gets a result of.
    const std::string text = describe(key, key.round.round()) + ": what " +
                             epoch_->ranks[key.reply_routes[child].rank] +
                             " pushed is not a payload of its codec: " + error.what();
    events_.log(kError, text);
    return fail_round(key, FailureKind::protocol, text);
  } catch (const std::bad_alloc& lack) {
    return fail_round(key, FailureKind::memory, lack_text(key, lack.what()));
  }
  keep(key, others + key.rule->sum_bytes());
}

void Shard::advance(KeyState& key, const Header& header) {
  for (int child; (child = key.round.next_to_add()) >= 0;) {
    if (!key.failure) add_turn(key, static_cast<uint16_t>(child));
    key.round.add(static_cast<uint16_t>(child));
  }
  if (const int child = key.round.next_to_ask(); child >= 0) {
    key.round.ask(static_cast<uint16_t>(child));
    send_resend(key, key.reply_routes[static_cast<size_t>(child)].rank, header.round);
  }
  if (key.round.complete()) {
    if (!key.failure) {
      publish(key, header);
    } else {
      tell_failure(key);
    }
    tell_answered(key);
    close_round(key);
  }
}

void Shard::drop_contributions(KeyState& key) {
  for (auto& held : key.held) held = {};
  key.rule->drop();
  keep(key, 0);
}

void Shard::close_round(KeyState& key) {
  if (key.failure) key.last_failure = std::move(key.failure);
  abandon_round(key);
  key.round.close();
}

// Nobody waits for its result any more.
void Shard::abandon_round(KeyState& key) {
  drop_contributions(key);
  key.failure.reset();
  --open_rounds_;
}

void Shard::publish(KeyState& key, const Header& header) {
  try {
    key.rule->finish(key.terms, counts(), pool_);
    key.result_round = key.round.round();
  } catch (const WireError& error) {  // a codec of the user's failed
    fail_round(key, FailureKind::protocol, describe(key, header.round) + ": " + error.what());
    return tell_failure(key);
  } catch (const std::bad_alloc& lack) {
    fail_round(key, FailureKind::memory, lack_text(key, lack.what()));
    return tell_failure(key);
  }
  record({.stage = Stage::summed,
          .round = header.round,
          .key = key.key,
          .at_ns = now_ns(),
          .bytes = key.length});
  sample_result(key, "result", header.round);
  for (const ReplyRoute& route : key.reply_routes) send_result(key, route, header);
}

void Shard::tell_answered(const KeyState& key) {
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.missing(child)) continue;
    const ReplyRoute& route = key.reply_routes[child];
    ChildLink* link = link_of(key, child);
    if (link && link->number() == route.connection) link->answered(route.bytes, route.priority);
  }
}

// By address, the result is read out of this process later, when the worker comes to it. One that lasts is
// there until then: it is replaced when the next round is complete, which needs a contribution of every
// child, and a child contributes to the next round only when it has this result. What else can happen until
// it is read:
//   - the child asks for the result again: it is the same buffer, and its next contribution is not here yet;
//   - a round fails: it is closed without a result, and the one before it stays;
//   - the worker gives the operation up: it then does not read;
//   - the tensor is retired: all its operations are done, so nobody reads;
//   - this shard ends: it withdraws its lease first, and a reader that was late notices.
void Shard::send_result(KeyState& key, ReplyRoute route, const Header& to) {
  ChildLink* link = links_[route.rank].get();
  if (!link) return;  // it sends its contribution again when it is back
  const uint16_t child = child_of(route.rank);
  Header header = answer(FrameType::result, key, to.round, to.priority);
  ShardCounters::bump(counters_.results);
  Result result = key.rule->result_for(child, terms_of(to));
  if (!result.bytes) return link->send(header, nullptr, {});
  header.codec = result.codec;
  ShardCounters::bump(counters_.pulled_bytes, key.length);
  ShardCounters::bump(counters_.pulled_wire_bytes, result.size);
  // An echo of a child that has gone on to the next round already; ours never send one.
  const bool went_on = to.round != key.round.round() && !key.round.missing(child);
  const std::byte* bytes = result.bytes.data();
  if (!route.by_address || !result.lasts || went_on || result.size < tuning::kByAddressBytes) {
    header.length = result.size;
    return link->send(header, bytes, std::move(result.bytes));
  }
  if (result.codec != 0) header.detail = result.size;
  const Offer offer = lease_.offer(bytes);
  header.flags |= kFlagByAddress;
  link->send_copy(header, &offer, kOfferBytes);
}

// Ranks that are interrupted by something more urgent at different moments are through with different pieces.
// Without this, what only some of them have sent would wait until the others come back to it.
void Shard::ask_for_missing(int64_t now) {
  for (; !to_ask_.empty() && to_ask_.front().ask_ns <= now; to_ask_.pop_front()) {
    const auto& [_, id, round] = to_ask_.front();
    const KeyState* key = keys_.find(id);
    if (!key || !key->round.open() || key->round.round() != round || key->failure) continue;
    for (uint16_t child = 0; child < children(); ++child) {
      if (!key->round.missing(child)) continue;
      const uint16_t rank = key->reply_routes[child].rank;  // of the round before
      ChildLink* link = links_[rank].get();
      if (link && child_of(rank) == child) {
        link->send(answer(FrameType::want, *key, round, INT32_MAX), nullptr, {});
      }
    }
  }
}

void Shard::send_resend(const KeyState& key, uint16_t rank, uint32_t round) {
  ChildLink* link = links_[rank].get();
  if (link) link->send(answer(FrameType::resend, key, round, INT32_MAX), nullptr, {});
}

}  // namespace byteps
