// What comes in: is it what was expected, and is its round open?
#include <algorithm>
#include <cstring>

#include "aggregator/shard.h"
#include "base/clock.h"
#include "base/error.h"
#include "reduce/sum.h"

namespace byteps {
namespace {

Terms terms_of(const Header& header) {
  const bool broadcast = (header.flags & kFlagBroadcast) != 0;
  return {.average = (header.flags & kFlagAverage) != 0,
          .broadcast = broadcast,
          .root = broadcast ? header.detail : 0,
          .step = header.codec != 0 ? CodecTerms::of(header.received).step : 0};
}

std::string text_of(const Terms& terms, const AggregatorSettings& settings) {
  if (terms.broadcast) return "broadcast from " + settings.children[terms.root];
  const std::string text = terms.average ? "push_pull with average" : "push_pull with sum";
  return terms.step == 0 ? text : text + " at step " + std::to_string(terms.step) + " of its codec";
}

// Of a contribution that is compressed, wherever it lies.
uint32_t coded_bytes(const Header& header) {
  return header.flags & kFlagByAddress ? header.detail : header.length;
}

// The sum of a machine's ranks in a half type, not rounded yet: it is rounded once, with everybody's.
bool is_wide(const Header& header, const KeyState& key) {
  return is_half(key.tensor->dtype) && header.dtype == static_cast<uint8_t>(DType::f32) &&
         !(header.flags & kFlagBroadcast);
}

}  // namespace

Shard::Expected Shard::expect_contribution(uint16_t rank, const Header& header) {
  KeyState& key = keys_.key_of(rank, header);
  const uint16_t child = child_of(rank);
  const bool wide = is_wide(header, key);
  if (header.dtype != static_cast<uint8_t>(key.tensor->dtype) && !wide) {
    throw WireError("PUSH: " + key.tensor->name + " is " + name_of(key.tensor->dtype) + ", not " +
                    name_of(static_cast<DType>(header.dtype)));
  }
  const Terms terms = terms_of(header);
  if (terms.root >= children()) throw WireError("PUSH: broadcast from a child that does not exist");
  const uint8_t codec = key.codec && !terms.broadcast ? key.codec->kind() : 0;
  if (header.codec != codec) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] + ": codec " +
                    std::to_string(header.codec) + ", expected " + std::to_string(codec));
  }
  if (codec != 0) return expect_coded(key, rank, header);
  const uint32_t bytes = terms.broadcast && terms.root != child ? 0 : wide ? 2 * key.length : key.length;
  const size_t expected = bytes > 0 && (header.flags & kFlagByAddress) ? kOfferBytes : bytes;
  if (header.length != expected) {
    throw WireError("PUSH: " + key.tensor->name + ": " + std::to_string(header.length) + " bytes, expected " +
                    std::to_string(expected));
  }
  if (settings_.asynchronous) return {bytes, true};
  if (first_departed_ >= 0 || !key.failure.empty()) return {bytes, false};
  return {bytes, key.round.offer(child, header.round) == KeyRound::Verdict::accept &&
                     may_hold(key, child, key.length)};
}

// Compressed: any length up to the codec's most.
Shard::Expected Shard::expect_coded(const KeyState& key, uint16_t rank, const Header& header) {
  const uint32_t bytes = coded_bytes(header);
  if (bytes == 0 || bytes > key.codec->max_bytes()) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] + ": " +
                    std::to_string(bytes) + " compressed bytes, expected 1 to " +
                    std::to_string(key.codec->max_bytes()));
  }
  if (settings_.asynchronous) return {bytes, true};
  if (first_departed_ >= 0 || !key.failure.empty()) return {bytes, false};
  const uint16_t child = child_of(rank);
  return {bytes,
          key.round.offer(child, header.round) == KeyRound::Verdict::accept && may_hold(key, child, bytes)};
}

bool Shard::may_hold(const KeyState& key, uint16_t child, size_t bytes) const {
  const auto share = static_cast<size_t>(limits::kHeldShare * static_cast<double>(keys_.bytes()));
  return !key.round.open() || key.round.its_turn(child) ||
         live_bytes_ - open_bytes_ + bytes <= std::max(limits::kHeldBytes, share);
}

bool Shard::contribute(uint16_t rank, const Header& header, bool landed, BufferRef payload) {
  KeyState& key = keys_.key_of(rank, header);
  const uint16_t child = child_of(rank);
  ShardCounters::bump(counters_.contributions);
  if (settings_.key_log) {
    events_.log(kInfo, "contribution to " + describe(key, header.round) + " from " + settings_.ranks[rank] +
                           ": " + std::to_string(payload ? key.length : 0) + " bytes");
  }
  const uint32_t size = header.codec != 0 ? coded_bytes(header) : 0;
  if (landed && payload) {
    ShardCounters::bump(counters_.pushed_bytes, key.length);
    ShardCounters::bump(counters_.pushed_wire_bytes, size > 0 ? size : key.length);
  }
  if (landed && payload && size == 0)
    sample(key, ("from " + settings_.ranks[rank]).c_str(), header.round, payload.data(), key.length,
           static_cast<DType>(header.dtype));
  if (settings_.asynchronous) {
    contribute_async(key, rank, header, std::move(payload));
    return false;
  }

  const uint32_t bytes = size > 0               ? size
                         : !payload && landed   ? 0
                         : is_wide(header, key) ? 2 * key.length
                                                : key.length;
  const Way way{rank, (header.flags & kFlagByAddress) != 0, bytes, header.priority};
  if (first_departed_ >= 0) {
    send_error(key, rank, header.round, ErrorKind::lost,
               settings_.ranks[first_departed_] + " has left the job");
    return false;
  }
  switch (key.round.offer(child, header.round)) {
    case KeyRound::Verdict::accept:
      break;
    case KeyRound::Verdict::finished:  // its connection broke before the result came
      ShardCounters::bump(counters_.duplicates);
      if (key.result && key.result_round == header.round) send_result(key, way, header);
      return false;
    case KeyRound::Verdict::duplicate:
      if (key.ways[child].rank != rank) {
        throw WireError("PUSH: " + describe(key, header.round) + " comes from " + settings_.ranks[rank] +
                        ", but " + settings_.ranks[key.ways[child].rank] +
                        " has pushed it for the same machine; set BYTEPS_ENABLE_IPC alike on all processes");
      }
      [[fallthrough]];
    case KeyRound::Verdict::past:
      ShardCounters::bump(counters_.duplicates);
      return false;
    case KeyRound::Verdict::ahead:
      throw WireError("PUSH: " + describe(key, header.round) + " while round " +
                      std::to_string(key.round.round()) + " is open");
  }

  const Terms terms = terms_of(header);
  key.ways[child] = way;
  if (!key.round.open()) {
    open_round(key, terms);
  } else if (!(key.terms == terms) && key.failure.empty()) {
    fail_round(key, key.tensor->name + ": ranks call different operations: " + settings_.ranks[rank] + " a " +
                        text_of(terms, settings_) + ", the others a " + text_of(key.terms, settings_));
  }
  if (!key.failure.empty()) {
    key.round.hold(child);
    advance(key, header);
    return true;
  }
  // Only between machines: nearby, a link has little in front of it, and nothing lags for long.
  if (!key.asks && !key.coded() && !links_[rank]->nearby()) {
    key.asks = true;
    to_ask_.push_back({now_ns() + limits::kWantAfterNs, key.key, header.round});
  }
  // Asked again: while this one was coming in, another may have taken the place of the sum.
  landed = landed && (!payload || may_hold(key, child, size > 0 ? size : key.length));
  if (!landed) {
    key.round.drop(child);
    ShardCounters::bump(counters_.dropped);
  } else {
    if (payload) live_bytes_ += size > 0 ? size : key.length;
    key.held[child] = {std::move(payload), is_wide(header, key), size, CodecTerms::of(header.received)};
    key.round.hold(child);
  }
  advance(key, header);
  return landed;
}

void Shard::ask_again(uint16_t rank, const Header& header) {
  ShardCounters::bump(counters_.dropped);
  send_resend(keys_.key_of(rank, header), rank, header.round);
}

void Shard::refuse(uint16_t rank, const Header& header, std::string text) {
  KeyState& key = keys_.key_of(rank, header);
  const uint16_t child = child_of(rank);
  if (settings_.asynchronous) throw WireError("REFUSE: nobody waits for anybody in asynchronous mode");
  if (first_departed_ >= 0) {
    return send_error(key, rank, header.round, ErrorKind::lost,
                      settings_.ranks[first_departed_] + " has left the job");
  }
  if (key.round.offer(child, header.round) != KeyRound::Verdict::accept) {
    ShardCounters::bump(counters_.duplicates);
    return;
  }
  key.ways[child] = {rank, false, 0, header.priority};
  if (!key.round.open()) open_round(key, Terms{});
  if (key.failure.empty()) fail_round(key, std::move(text));
  key.round.hold(child);
  advance(key, header);
}

// ---- asynchronous mode
// -------------------------------------------------------------------------------------

void Shard::contribute_async(KeyState& key, uint16_t rank, const Header& header, BufferRef payload) {
  const uint16_t child = child_of(rank);
  const Terms terms = terms_of(header);
  key.counted.resize(children());
  const bool again = header.round < key.counted[child];  // its connection broke before the answer came
  key.counted[child] = std::max(key.counted[child], header.round + 1);
  if (again) ShardCounters::bump(counters_.duplicates);
  if (terms.broadcast && terms.root != child) {
    if (!key.result) {
      key.waiting_for_value.emplace_back(rank, header.round);
      return;
    }
  } else if (!again && header.codec != 0) {
    // A contribution is compressed; the value that comes back is whole: it is no gradient.
    BufferRef value = pool_.take(key.length);
    if (key.result) {
      std::memcpy(value.data(), key.result.data(), key.length);
    } else {
      std::memset(value.data(), 0, key.length);
    }
    try {
      key.codec->add_to(key.tensor->dtype, value.data(), payload.data(), coded_bytes(header),
                        CodecTerms::of(header.received).step);
    } catch (const WireError& error) {
      throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] + ": " +
                      error.what());
    }
    key.result = std::move(value);
  } else if (!again) {
    if (key.result && !terms.broadcast) {
      // Into the contribution, not into the stored value: results on their way to others still read that one.
      add(key.tensor->dtype, payload.data(), key.result.data(), key.length / size_of(key.tensor->dtype));
    }
    key.result = std::move(payload);
    sample(key, "stored", header.round, key.result.data(), key.length, key.tensor->dtype);
  }
  send_result(key, {rank}, header);
  if (key.waiting_for_value.empty()) return;
  Header to = header;
  for (const auto& [waiting, round] : std::exchange(key.waiting_for_value, {})) {
    to.round = round;
    send_result(key, {waiting}, to);
  }
}

}  // namespace byteps
