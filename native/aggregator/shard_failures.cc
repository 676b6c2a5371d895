// Rounds that cannot succeed, and rounds that take too long: who is told, and when.
#include "aggregator/shard.h"
#include "base/clock.h"

namespace byteps {

void Shard::send_error(const KeyState& key, uint16_t rank, uint32_t round, FailureKind kind,
                       const std::string& text) {
  ChildLink* link = links_[rank].get();
  if (!link) return;
  ShardCounters::bump(counters_.errors);
  Header header = answer(FrameType::error, key, round, INT32_MAX);
  header.detail = static_cast<uint32_t>(kind);
  if (kind == FailureKind::lost) header.detail |= static_cast<uint32_t>(first_departed_) << kErrorRankShift;
  link->send_text(header, text);
}

// Children are told when all have come, and not before: one that heard of it at once would push its next
// round while this one is still open.
void Shard::fail_round(KeyState& key, FailureKind kind, std::string text) {
  key.failure = RoundFailure{kind, std::move(text), key.round.round()};
  drop_contributions(key);
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.contributed(child)) key.round.waive(child);
  }
}

// Nothing if there is no memory for the words either: that the round has failed must not depend on them.
std::string Shard::lack_text(const KeyState& key, const char* why) const {
  try {
    return describe(key, key.round.round()) + ": " + why +
           "; give the servers more memory, or start more of them (DMLC_NUM_SERVER)";
  } catch (const std::bad_alloc&) {
    return {};
  }
}

void Shard::tell_failure(KeyState& key) {
  if (std::exchange(key.failure->told, true)) return;
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.missing(child)) continue;
    send_error(key, key.reply_routes[child].rank, key.round.round(), key.failure->kind, key.failure->text);
  }
}

void Shard::rank_departed(uint16_t rank) {
  if (first_departed_ < 0) first_departed_ = rank;
  for (auto& [_, key] : keys_) {
    if (!key.round.open() || !key.round.missing(child_of(rank))) continue;
    // It will never be complete: whoever is there is told now, also of a failure that was to be told later.
    if (!key.failure) fail_round(key, FailureKind::lost, left_text(epoch_->ranks[rank]));
    tell_failure(key);
    tell_answered(key);  // without credit they could not send the rest of the tensor, and hear of its end
  }
}

// ---- stalls

std::string Shard::missing_text(const KeyState& key) const {
  std::string text;
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.missing(child)) text += (text.empty() ? "" : ", ") + epoch_->children[child];
  }
  return text;
}

void Shard::tell_stalls(int64_t now) {
  constexpr int kMostPerTick = 8;  // one stalled rank stalls every key: a few lines say it
  int told = 0;
  for (auto& [_, key] : keys_) {
    if (!key.round.open() || key.stall_told || key.failure) continue;
    if (now - key.opened_ns < seconds_to_ns(settings_.stall_warn_s)) continue;
    if (++told > kMostPerTick) return;
    key.stall_told = true;
    const std::string missing = missing_text(key);
    if (told == 1) events_.log(kWarning, describe(key, key.round.round()) + " waits for " + missing);
    for (uint16_t child = 0; child < children(); ++child) {
      ChildLink* link = link_of(key, child);
      if (key.round.missing(child) || !link) continue;
      link->send_text(answer(FrameType::stall, key, key.round.round(), INT32_MAX), missing);
    }
  }
}

}  // namespace byteps
