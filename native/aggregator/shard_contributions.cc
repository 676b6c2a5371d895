// What comes in: is it what was expected, and is its round open?
#include <algorithm>
#include <cstring>

#include "aggregator/shard.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
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

// How long it must be, on the wire and as it is, whatever the round: what a worker of ours would not send is
// refused before it costs memory.
uint32_t Shard::contribution_bytes(const KeyState& key, uint16_t rank, const Header& header) const {
  const bool wide = is_wide(header, key) && !settings_.asynchronous;  // then no machine sums among itself
  if (header.dtype != static_cast<uint8_t>(key.tensor->dtype) && !wide) {
    throw WireError("PUSH: " + key.tensor->name + " is " + name_of(key.tensor->dtype) + ", not " +
                    name_of(static_cast<DType>(header.dtype)));
  }
  const Terms terms = terms_of(header);
  if (terms.root >= children()) throw WireError("PUSH: broadcast from a child that does not exist");
  if (terms.broadcast && terms.average) throw WireError("PUSH: a broadcast that is to be divided");
  const auto& declared = key.tensor->codec;
  const uint8_t codec = declared && !terms.broadcast ? static_cast<uint8_t>(declared->spec.kind) : 0;
  if (header.codec != codec) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] + ": codec " +
                    std::to_string(header.codec) + ", expected " + std::to_string(codec));
  }
  const bool empty = terms.broadcast && terms.root != child_of(rank);
  const uint32_t bytes = codec != 0 ? coded_bytes(header) : empty ? 0 : wide ? 2 * key.length : key.length;
  const size_t most = codec != 0 && key.codec ? key.codec->max_bytes() : limits::kMaxPushBytes;
  if (codec != 0 && (bytes == 0 || bytes > most)) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] + ": " +
                    std::to_string(bytes) + " compressed bytes, expected 1 to " + std::to_string(most));
  }
  const size_t expected = bytes > 0 && (header.flags & kFlagByAddress) ? kOfferBytes : bytes;
  if (header.length != expected) {
    throw WireError("PUSH: " + key.tensor->name + ": " + std::to_string(header.length) + " bytes, expected " +
                    std::to_string(expected));
  }
  return bytes;
}

Shard::Expected Shard::expect_contribution(uint16_t rank, const Header& header) {
  KeyState& key = keys_.key_of(rank, header);
  const uint16_t child = child_of(rank);
  Expected expected{contribution_bytes(key, rank, header), true};
  if (!settings_.asynchronous) {
    expected.wanted = first_departed_ < 0 && !key.failure &&
                      key.round.offer(child, header.round) == KeyRound::Verdict::accept &&
                      may_hold(key, child, expected.bytes);
  }
  if (!expected.wanted || header.codec == 0 || key.codec) return expected;
  try {
    make_codec(key);
    expected.bytes = contribution_bytes(key, rank, header);  // now that its longest payload is known
  } catch (const std::bad_alloc& lack) {
    no_memory(rank, header, lack.what());
    expected.wanted = false;
  }
  return expected;
}

// The sum of a compressed round has the size of the whole piece, however short its contributions are.
void Shard::make_codec(KeyState& key) {
  const size_t elements = key.length / size_of(key.tensor->dtype);
  MemoryGate::shared().ask(3 * elements *
                           sizeof(float));  // the sum, the error, and what the codec needs besides
  try {
    key.codec = std::make_unique<KeyCodec>(*key.tensor->codec, key.tensor->name, piece_of(key.key), elements,
                                           children());
  } catch (const std::invalid_argument& error) {  // one that cannot be
    throw WireError("PUSH: " + key.tensor->name + ": " + error.what());
  }
}

bool Shard::may_hold(const KeyState& key, uint16_t child, size_t bytes) const {
  if (!key.round.open() || key.round.its_turn(child)) return true;
  const auto share = static_cast<size_t>(limits::kHeldShare * static_cast<double>(keys_.bytes()));
  const size_t others = extra_bytes_ - key.extra_bytes(key.kept_bytes);
  return others + key.extra_bytes(key.kept_bytes + bytes) <= std::max(limits::kHeldBytes, share);
}

bool Shard::contribute(uint16_t rank, const Header& header, uint32_t bytes, bool landed, BufferRef payload) {
  KeyState& key = keys_.key_of(rank, header);
  // It took a while to come, and between two of its bytes anything may have happened.
  if (contribution_bytes(key, rank, header) != bytes) {
    throw WireError("PUSH: " + describe(key, header.round) + " has changed its size while it came");
  }
  const uint16_t child = child_of(rank);
  ShardCounters::bump(counters_.contributions);
  if (settings_.key_log) {
    events_.log(kInfo, "contribution to " + describe(key, header.round) + " from " + settings_.ranks[rank] +
                           ": " + std::to_string(payload ? key.length : 0) + " bytes");
  }
  const uint32_t size = header.codec != 0 ? bytes : 0;
  if (landed && payload) {
    ShardCounters::bump(counters_.pushed_bytes, key.length);
    ShardCounters::bump(counters_.pushed_wire_bytes, size > 0 ? size : key.length);
  }
  if (landed && payload && size == 0)
    sample(key, ("from " + settings_.ranks[rank]).c_str(), header.round, payload.data(), key.length,
           static_cast<DType>(header.dtype));
  if (settings_.asynchronous) {
    try {
      if (landed) contribute_async(key, rank, header, std::move(payload));
    } catch (const std::bad_alloc& lack) {
      no_memory(rank, header, lack.what());
    }
    return false;
  }

  const Way way{rank, (header.flags & kFlagByAddress) != 0, bytes, header.priority};
  if (first_departed_ >= 0) {
    send_error(key, rank, header.round, FailureKind::lost, left_text(settings_.ranks[first_departed_]));
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
  } else if (!(key.terms == terms) && !key.failure) {
    fail_round(key, FailureKind::conflict,
               key.tensor->name + ": ranks call different operations: " + settings_.ranks[rank] + " a " +
                   text_of(terms, settings_) + ", the others a " + text_of(key.terms, settings_));
  }
  if (key.failure) {
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
  landed = landed && (!payload || may_hold(key, child, bytes));
  if (!landed) {
    key.round.drop(child);
    ShardCounters::bump(counters_.dropped);
  } else {
    keep(key, key.kept_bytes + bytes);
    key.held[child] = {std::move(payload), is_wide(header, key), bytes, CodecTerms::of(header.received)};
    key.round.hold(child);
  }
  advance(key, header);
  return landed;
}

void Shard::no_memory(uint16_t rank, const Header& header, const char* why) {
  KeyState& key = keys_.key_of(rank, header);
  events_.log(kError, lack_text(key, why));
  if (settings_.asynchronous)
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
  if (settings_.asynchronous) throw WireError("REFUSE: nobody waits for anybody in asynchronous mode");
  if (first_departed_ >= 0) {
    return send_error(key, rank, header.round, FailureKind::lost,
                      left_text(settings_.ranks[first_departed_]));
  }
  if (key.round.offer(child, header.round) != KeyRound::Verdict::accept) {
    ShardCounters::bump(counters_.duplicates);
    return;
  }
  key.ways[child] = {rank, false, 0, header.priority};
  if (!key.round.open()) open_round(key, Terms{});
  if (!key.failure) {
    fail_round(key, FailureKind::conflict,
               why.empty() ? describe(key, header.round) + ": " + settings_.ranks[rank] +
                                 " has nothing to contribute, and does not say why"
                           : printable(why));
  }
  key.round.hold(child);
  advance(key, header);
}

// ---- asynchronous mode
// -------------------------------------------------------------------------------------

void Shard::contribute_async(KeyState& key, uint16_t rank, const Header& header, BufferRef payload) {
  const uint16_t child = child_of(rank);
  const Terms terms = terms_of(header);
  key.taken.resize(children());
  KeyState::Taken& taken = key.taken[child];
  const bool again = header.round < taken.rounds;  // its connection broke before the answer came
  if (again) ShardCounters::bump(counters_.duplicates);
  if (terms.broadcast && terms.root != child) {
    if (!key.result) {
      taken.rounds = std::max(taken.rounds, header.round + 1);
      taken.waits = {rank, header.round};
      return;
    }
  } else if (!again) {
    store(key, rank, header, std::move(payload));
    sample(key, "stored", header.round, key.result.data(), key.length, key.tensor->dtype);
  } else if (!key.result) {
    throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] +
                    " has come before as an empty part of a broadcast, and nobody has set its value yet");
  }
  taken.rounds = std::max(taken.rounds, header.round + 1);
  send_result(key, {rank}, header);
  Header to = header;
  for (KeyState::Taken& other : key.taken) {
    if (!other.waits) continue;
    to.round = other.waits->round;
    send_result(key, {other.waits->rank}, to);
    other.waits.reset();
  }
}

// The value becomes another buffer: results on their way to others still read the one before.
void Shard::store(KeyState& key, uint16_t rank, const Header& header, BufferRef payload) {
  const DType dtype = key.tensor->dtype;
  const size_t n = key.length / size_of(dtype);
  if (header.codec !=
      0) {  // a contribution is compressed; the value that comes back is whole: it is no gradient
    BufferRef value = pool_.take(key.length);
    if (key.result) {
      std::memcpy(value.data(), key.result.data(), key.length);
    } else {
      std::memset(value.data(), 0, key.length);
    }
    try {
      key.codec->add_to(dtype, value.data(), payload.data(), coded_bytes(header),
                        CodecTerms::of(header.received).step);
    } catch (const WireError& error) {
      throw WireError("PUSH: " + describe(key, header.round) + " from " + settings_.ranks[rank] + ": " +
                      error.what());
    }
    payload = std::move(value);
  } else if (key.result && !(header.flags & kFlagBroadcast)) {
    add(dtype, payload.data(), key.result.data(), n);
  }
  key.result = std::move(payload);
}

}  // namespace byteps
