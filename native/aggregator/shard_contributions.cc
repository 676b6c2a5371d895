// What comes in: is it what was expected, and is its round open?
#include <algorithm>

#include "aggregator/shard.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/tuning.h"
#include "observe/ring.h"

namespace byteps {
namespace {

std::string text_of(const Terms& terms, const Epoch& epoch) {
  if (terms.broadcast) return "broadcast from " + epoch.children[terms.root];
  const std::string text = terms.average ? "push_pull with average" : "push_pull with sum";
  return terms.step == 0 ? text : text + " at step " + std::to_string(terms.step) + " of its codec";
}

}  // namespace

Shape Shard::shape_of(const Header& header, const KeyState& key, uint16_t rank) const {
  return byteps::shape_of(header, key, key.rule->form(), {child_of(rank), epoch_->ranks[rank]}, children());
}

Shard::Expected Shard::expect_contribution(uint16_t rank, const Header& header) {
  KeyState& key = keys_.key_of(rank, header);
  const Shape shape = shape_of(header, key, rank);
  Expected expected{shape.bytes, is_wanted(key, child_of(rank), header, shape.bytes)};
  if (!expected.wanted) return expected;
  try {
    if (key.rule->prepare(shape, counts())) expected.bytes = shape_of(header, key, rank).bytes;
  } catch (const std::bad_alloc& lack) {
    no_memory(rank, header, lack.what());
    expected.wanted = false;
  }
  return expected;
}

bool Shard::is_wanted(const KeyState& key, uint16_t child, const Header& header, size_t bytes) const {
  if (!key.rule->is_collective()) return true;
  return first_departed_ < 0 && !key.failure &&
         key.round.offer(child, header.round) == KeyRound::Verdict::accept && may_hold(key, child, bytes);
}

bool Shard::may_hold(const KeyState& key, uint16_t child, size_t bytes) const {
  if (!key.round.open() || key.round.its_turn(child)) return true;
  const auto share = static_cast<size_t>(tuning::kHeldShare * static_cast<double>(keys_.bytes()));
  const size_t others = extra_bytes_ - key.extra_bytes(key.kept_bytes);
  return others + key.extra_bytes(key.kept_bytes + bytes) <= std::max(tuning::kHeldBytes, share);
}

bool Shard::contribute(uint16_t rank, const Header& header, uint32_t bytes, bool landed, BufferRef payload) {
  KeyState& key = keys_.key_of(rank, header);
  const Shape shape = shape_of(header, key, rank);
  // It took a while to come, and between two of its bytes anything may have happened.
  if (shape.bytes != bytes) {
    throw WireError("PUSH: " + describe(key, header.round) + " has changed its size while it came");
  }
  record({.stage = Stage::arrived,
          .peer = rank,
          .round = header.round,
          .key = header.key,
          .at_ns = now_ns(),
          .bytes = bytes});
  count_contribution(key, rank, header, shape, landed, payload);
  Contribution contribution{child_of(rank), std::move(payload), shape, CodecTerms::of(header.received)};
  if (key.rule->is_collective()) {
    const ReplyRoute route{rank, (header.flags & kFlagByAddress) != 0, bytes, header.priority,
                           links_[rank]->number()};
    return contribute_to_round(key, route, header, landed, std::move(contribution));
  }
  if (landed) contribute_at_once(key, rank, header, std::move(contribution));
  return false;
}

void Shard::count_contribution(const KeyState& key, uint16_t rank, const Header& header, const Shape& shape,
                               bool landed, const BufferRef& payload) {
  ShardCounters::bump(counters_.contributions);
  if (settings_.key_log) {
    events_.log(kInfo, "contribution to " + describe(key, header.round) + " from " + epoch_->ranks[rank] +
                           ": " + std::to_string(payload ? key.length : 0) + " bytes");
  }
  if (!landed || !payload) return;
  ShardCounters::bump(counters_.pushed_bytes, key.length);
  ShardCounters::bump(counters_.pushed_wire_bytes, shape.compressed ? shape.bytes : key.length);
  if (!shape.compressed && key.tensor->traced) {
    sample(key, ("from " + epoch_->ranks[rank]).c_str(), header.round, payload.data(),
           static_cast<DType>(header.dtype));
  }
}

// A contribution or a refusal that has come before, over a connection that broke before its answer came.
void Shard::answer_again(KeyState& key, const ReplyRoute& route, const Header& header) {
  if (key.result_round == header.round) {
    send_result(key, route, header);
  } else if (key.last_failure && key.last_failure->round == header.round) {
    send_error(key, route.rank, header.round, key.last_failure->kind, key.last_failure->text);
  }
}

// Whether a contribution is the first of its child to the open round. If not, it is answered here, or
// ignored.
Shard::Standing Shard::standing_of(KeyState& key, const ReplyRoute& route, const Header& header) {
  const uint16_t child = child_of(route.rank);
  const KeyRound::Verdict verdict = key.round.offer(child, header.round);
  Standing standing = Standing::dealt_with;
  if (first_departed_ >= 0 && verdict != KeyRound::Verdict::finished) {
    send_error(key, route.rank, header.round, FailureKind::lost, left_text(epoch_->ranks[first_departed_]));
    return standing;
  }
  switch (verdict) {
    case KeyRound::Verdict::accept:
      return Standing::first;
    case KeyRound::Verdict::finished:
      answer_again(key, route, header);
      break;
    case KeyRound::Verdict::duplicate:
      if (key.reply_routes[child].rank != route.rank) {
        throw WireError("PUSH: " + describe(key, header.round) + " comes from " + epoch_->ranks[route.rank] +
                        ", but " + epoch_->ranks[key.reply_routes[child].rank] +
                        " has pushed it for the same machine; set BYTEPS_ENABLE_IPC alike on all processes");
      }
      // What it took of the window of its old connection went with that: now it is this one's.
      if (!key.round.missing(child) && key.reply_routes[child].connection != route.connection) {
        key.reply_routes[child] = route;
        standing = Standing::open;
      }
      break;
    case KeyRound::Verdict::past:
      break;
    case KeyRound::Verdict::ahead:
      throw WireError("PUSH: " + describe(key, header.round) + " while round " +
                      std::to_string(key.round.round()) + " is open");
  }
  ShardCounters::bump(counters_.duplicates);
  return standing;
}

bool Shard::contribute_to_round(KeyState& key, const ReplyRoute& route, const Header& header, bool landed,
                                Contribution contribution) {
  const Standing standing = standing_of(key, route, header);
  if (standing != Standing::first) return standing == Standing::open;
  const uint16_t child = contribution.child;
  const Shape shape = contribution.shape;
  const Terms terms = terms_of(header);
  key.reply_routes[child] = route;
  if (!key.round.open()) {
    open_round(key, terms);
  } else if (!(key.terms == terms) && !key.failure) {
    fail_round(key, FailureKind::conflict,
               key.tensor->name + ": ranks call different operations: " + epoch_->ranks[route.rank] + " a " +
                   text_of(terms, *epoch_) + ", the others a " + text_of(key.terms, *epoch_));
  }
  if (key.failure) {
    key.round.hold(child);
    advance(key, header);
    return true;
  }
  // Only between machines: on one machine a link has little in front of it, and nothing lags for long.
  if (!key.asks && !shape.compressed && !links_[route.rank]->same_machine()) {
    key.asks = true;
    to_ask_.push_back({now_ns() + tuning::kWantAfterNs, key.key, header.round});
  }
  // Asked again: while this one was coming in, another may have taken the place of the sum.
  landed = landed && (!contribution.bytes || may_hold(key, child, shape.bytes));
  if (!landed) {
    key.round.drop(child);
    ShardCounters::bump(counters_.dropped);
  } else {
    keep(key, key.kept_bytes + shape.bytes);
    key.held[child] = std::move(contribution);
    key.round.hold(child);
  }
  advance(key, header);
  return landed;
}

void Shard::no_memory(uint16_t rank, const Header& header, const char* why) {
  KeyState& key = keys_.key_of(rank, header);
  events_.log(kError, lack_text(key, why));
  if (!key.rule->is_collective())
    return send_error(key, rank, header.round, FailureKind::memory, lack_text(key, why));
  if (!key.failure) fail_round(key, FailureKind::memory, lack_text(key, why));
}

void Shard::ask_again(uint16_t rank, const Header& header) {
  ShardCounters::bump(counters_.dropped);
  send_resend(keys_.key_of(rank, header), rank, header.round);
}

void Shard::refuse(uint16_t rank, const Header& header, std::string_view why) {
  KeyState& key = keys_.key_of(rank, header);
  const uint16_t child = child_of(rank);
  if (!key.rule->is_collective()) throw WireError("REFUSE: nobody waits for anybody in asynchronous mode");
  const ReplyRoute route{rank, false, 0, header.priority, links_[rank]->number()};
  const KeyRound::Verdict verdict = key.round.offer(child, header.round);
  if (first_departed_ >= 0 && verdict != KeyRound::Verdict::finished) {
    return send_error(key, rank, header.round, FailureKind::lost, left_text(epoch_->ranks[first_departed_]));
  }
  if (verdict != KeyRound::Verdict::accept) {
    if (verdict == KeyRound::Verdict::finished) answer_again(key, route, header);
    ShardCounters::bump(counters_.duplicates);
    return;
  }
  key.reply_routes[child] = route;
  if (!key.round.open()) open_round(key, Terms{});
  if (!key.failure) {
    fail_round(key, FailureKind::conflict,
               why.empty() ? describe(key, header.round) + ": " + epoch_->ranks[rank] +
                                 " has nothing to contribute, and does not say why"
                           : printable(why));
  }
  key.round.hold(child);
  advance(key, header);
}

}  // namespace byteps
