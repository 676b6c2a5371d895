#include "aggregator/shard.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "observe/sample.h"
#include "reduce/sum.h"
#include "wire/declaration.h"

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

Header answer(FrameType type, const KeyState& key, uint32_t round, int32_t priority) {
  Header header;
  header.type = type;
  header.dtype = static_cast<uint8_t>(key.tensor->dtype);
  header.key = key.key;
  header.round = round;
  header.priority = priority;
  return header;
}

// The sum of a machine's ranks in a half type, not rounded yet: it is rounded once, with everybody's.
bool is_wide(const Header& header, const KeyState& key) {
  return is_half(key.tensor->dtype) && header.dtype == static_cast<uint8_t>(DType::f32) &&
         !(header.flags & kFlagBroadcast);
}

}  // namespace

Shard::Shard(const AggregatorSettings& settings, unsigned index, EventQueue& events)
    : settings_(settings),
      events_(events),
      loop_(*this, "bps-shard-" + std::to_string(index)),
      links_(settings.ranks.size()) {}

Shard::~Shard() { stop(); }

void Shard::stop() {
  loop_.stop();
  lease_.withdraw();  // results go with this object, and a worker may not have read its last one yet
  for (auto& link : links_) link.reset();
  ended_.clear();
}

// ---- from other threads
// ------------------------------------------------------------------------------------

void Shard::attach(uint16_t rank, Fd fd, bool checksum, pid_t peer_pid) {
  auto shared = std::make_shared<Fd>(std::move(fd));  // std::function wants a copyable closure
  loop_.post([this, rank, shared, checksum, peer_pid] {
    const TcpLink::Options options{settings_.job, settings_.epoch, checksum};
    if (links_[rank]) {  // the rank has connected anew: what it had not finished sending, it sends again
      links_[rank]->link()->close();
      ended_.push_back(std::move(links_[rank]));
    } else {
      ShardCounters::bump(counters_.connections);
    }
    links_[rank] = std::make_unique<ChildLink>(*this, loop_, rank, std::move(*shared), options, peer_pid);
    links_[rank]->link()->open();
  });
}

void Shard::depart(uint16_t rank) {
  loop_.post([this, rank] { rank_departed(rank); });
}

void Shard::retire(std::vector<uint32_t> tensors) {
  loop_.post([this, tensors = std::move(tensors)] { forget(tensors); });
}

// ---- the loop
// ----------------------------------------------------------------------------------------------

void Shard::on_batch_end() {
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    if (links_[rank]) links_[rank]->settle();  // may end the link, and so make the pointer null
  }
  uint64_t sent = 0, received = 0;
  for (auto& link : links_) {
    if (!link) continue;
    sent += link->link()->traffic().sent_bytes;
    received += link->link()->traffic().received_bytes;
  }
  counters_.sent_bytes.store(sent, std::memory_order_relaxed);
  counters_.received_bytes.store(received, std::memory_order_relaxed);
  counters_.buffer_bytes.store(pool_.allocated_bytes(), std::memory_order_relaxed);
  ended_.clear();
}

void Shard::child_ended(ChildLink& link, Link::End end, const std::string& reason) {
  const uint16_t rank = link.rank();
  counters_.connections.fetch_sub(1, std::memory_order_relaxed);
  events_.post({end == Link::End::violation ? "violation" : "lost", rank, reason});
  ended_.push_back(std::move(links_[rank]));
}

// ---- declarations
// ------------------------------------------------------------------------------------------

void Shard::declare(const Header& header, const std::vector<std::byte>& payload) {
  const Declaration d = decode_declaration(payload);
  const uint32_t id = tensor_of(header.key);
  auto info = std::make_shared<TensorInfo>(TensorInfo{id, d.name, static_cast<DType>(header.dtype), d.cut});
  if (d.cut.tensor_bytes % size_of(info->dtype) != 0)
    throw WireError("DECLARE: not a whole number of elements");
  if (d.codec.kind != 0) {
    if (!is_float(info->dtype)) throw WireError("DECLARE: a codec for " + std::string(name_of(info->dtype)));
    info->codec = compress::from_fields(d.codec);
  }
  info->traced =
      sample_matches(settings_.sample, d.name, id) ||
      (settings_.debug && (settings_.debug_key.empty() || sample_matches(settings_.debug_key, d.name, id)));
  auto [it, is_new] = tensors_.try_emplace(id, info);
  const TensorInfo& known = *it->second;
  if (!is_new && known.codec != info->codec) {
    throw WireError("DECLARE: tensor " + std::to_string(id) + ", " + known.name +
                    ", is declared with another " +
                    "codec; set BYTEPS_MIN_COMPRESS_BYTES and BYTEPS_JOB_ID alike on all workers");
  }
  if (!is_new && (known.name != info->name || known.dtype != info->dtype || !(known.cut == info->cut))) {
    throw WireError("DECLARE: tensor " + std::to_string(id) + " is known as " + known.name + ", " +
                    std::to_string(known.cut.tensor_bytes) + " bytes of " + name_of(known.dtype) +
                    ", not as " + info->name + ", " + std::to_string(info->cut.tensor_bytes) + " bytes of " +
                    name_of(info->dtype));
  }
}

std::unordered_map<uint64_t, KeyState>::iterator Shard::make_key_state(
    uint64_t key, const std::shared_ptr<const TensorInfo>& tensor) {
  try {
    return keys_.try_emplace(key, key, tensor, children(), settings_.deterministic).first;
  } catch (const std::invalid_argument& error) {  // a codec that cannot be
    throw WireError("PUSH: " + tensor->name + ": " + error.what());
  }
}

KeyState& Shard::key_of(uint16_t rank, const Header& header) {
  if (auto it = keys_.find(header.key); it != keys_.end()) return it->second;
  const auto tensor = tensors_.find(tensor_of(header.key));
  if (tensor == tensors_.end()) {
    throw WireError("PUSH: " + settings_.ranks[rank] + " pushes tensor " +
                    std::to_string(tensor_of(header.key)) + " that it has not declared");
  }
  if (piece_of(header.key) >= tensor->second->cut.pieces())
    throw WireError("PUSH: piece beyond the tensor's end");
  const auto it = make_key_state(header.key, tensor->second);
  key_bytes_ += it->second.length;
  ShardCounters::bump(counters_.declared_bytes, it->second.length);
  return it->second;
}

void Shard::forget(const std::vector<uint32_t>& tensors) {
  for (const uint32_t id : tensors) {
    const auto tensor = tensors_.find(id);
    if (tensor == tensors_.end()) continue;
    for (uint32_t piece = 0; piece < tensor->second->cut.pieces(); ++piece) {
      const auto it = keys_.find(make_key(id, piece));
      if (it == keys_.end()) continue;
      if (it->second.round.open()) close_round(it->second);
      key_bytes_ -= it->second.length;
      counters_.declared_bytes.fetch_sub(it->second.length, std::memory_order_relaxed);
      keys_.erase(it);
    }
    tensors_.erase(tensor);
  }
  pool_.trim();
}

// ---- contributions
// -----------------------------------------------------------------------------------------

Shard::Expected Shard::expect_contribution(uint16_t rank, const Header& header) {
  KeyState& key = key_of(rank, header);
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
  const auto share = static_cast<size_t>(limits::kHeldShare * static_cast<double>(key_bytes_));
  return !key.round.open() || key.round.its_turn(child) ||
         live_bytes_ - open_bytes_ + bytes <= std::max(limits::kHeldBytes, share);
}

bool Shard::contribute(uint16_t rank, const Header& header, bool landed, BufferRef payload) {
  KeyState& key = key_of(rank, header);
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
  send_resend(key_of(rank, header), rank, header.round);
}

void Shard::refuse(uint16_t rank, const Header& header, std::string text) {
  KeyState& key = key_of(rank, header);
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

void Shard::open_round(KeyState& key, const Terms& terms) {
  key.terms = terms;
  key.opened_ns = now_ns();
  key.stall_told = false;
  ++open_rounds_;
  if (!key.coded()) open_bytes_ += key.length;  // the first contribution becomes the sum, and stays
}

void Shard::add_turn(KeyState& key, uint16_t child) {
  const Held& held = key.held[child];
  if (key.coded()) {
    live_bytes_ -= held.size;
  } else if (key.sum && held.bytes) {
    live_bytes_ -= key.length;
  }
  try {
    add_contribution(key, child, counts(), pool_);
  } catch (const WireError& error) {
    // Found out when its turn has come, perhaps while another child's frame is read: it is nobody's
    // connection that ends, but a round that nobody gets a result of.
    const std::string text = describe(key, key.round.round()) + ": what " +
                             settings_.ranks[key.ways[child].rank] +
                             " pushed is not a payload of its codec: " + error.what();
    events_.log(kError, text);
    fail_round(key, text);
    key.failure_kind = ErrorKind::protocol;
  }
}

void Shard::advance(KeyState& key, const Header& header) {
  for (int child; (child = key.round.next_to_add()) >= 0;) {
    if (key.failure.empty()) add_turn(key, static_cast<uint16_t>(child));
    key.round.add(static_cast<uint16_t>(child));
  }
  if (const int child = key.round.next_to_ask(); child >= 0) {
    key.round.ask(static_cast<uint16_t>(child));
    send_resend(key, key.ways[static_cast<size_t>(child)].rank, header.round);
  }
  if (key.round.complete()) {
    if (key.failure.empty()) {
      if (!key.coded()) live_bytes_ -= key.length;  // the sum becomes the result
      publish(key, header);
    } else {
      tell_failure(key, key.failure_kind);
    }
    tell_answered(key);
    close_round(key);
  }
}

void Shard::close_round(KeyState& key) {
  for (auto& held : key.held) {
    if (held.bytes) live_bytes_ -= key.coded() ? held.size : key.length;
    held.bytes.reset();
  }
  if (key.sum) live_bytes_ -= key.length;
  key.sum.reset();
  if (!key.coded()) open_bytes_ -= key.length;
  if (key.codec) key.codec->forget();
  key.failure.clear();
  key.failure_kind = ErrorKind::conflict;
  key.failure_told = false;
  key.round.close();
  --open_rounds_;
}

void Shard::publish(KeyState& key, const Header& header) {
  try {
    finish_sum(key, counts(), pool_);
  } catch (const WireError& error) {  // a codec of the user's failed
    key.failure = describe(key, header.round) + ": " + error.what();
    return tell_failure(key, ErrorKind::protocol);
  }
  if (!key.coded()) sample(key, "result", header.round, key.result.data(), key.length, key.tensor->dtype);
  for (const Way& way : key.ways) send_result(key, way, header);
}

void Shard::tell_answered(const KeyState& key) {
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.missing(child)) continue;
    const Way& way = key.ways[child];
    if (ChildLink* link = link_of(key, child)) link->answered(way.bytes, way.priority);
  }
}

// By address, the result is read out of this process later, when the worker comes to it. It is there until
// then: `key.result` is replaced when the next round is complete, which needs a contribution of every child,
// and a child contributes to the next round only when it has this result. What else can happen until it is
// read:
//   - the child asks for the result again: it is the same buffer, and its next contribution is not here yet;
//   - a round fails: it is closed without a result, and the one before it stays;
//   - the worker gives the operation up: it then does not read;
//   - the tensor is retired: all its operations are done, so nobody reads;
//   - this shard ends: it withdraws its lease first, and a reader that was late notices.
// In asynchronous mode anybody's push replaces the value: results go over the socket.
void Shard::send_result(KeyState& key, Way way, const Header& to) {
  ChildLink* link = links_[way.rank].get();
  if (!link) return;  // it sends its contribution again when it is back
  const uint16_t child = child_of(way.rank);
  Header header = answer(FrameType::result, key, to.round, to.priority);
  ShardCounters::bump(counters_.results);
  // The root of a broadcast has the bytes already.
  if ((to.flags & kFlagBroadcast) && to.detail == child && !settings_.asynchronous) {
    link->send(header, nullptr, {});
    return;
  }
  // An echo of a child that has gone on to the next round already; ours never send one.
  const bool went_on = to.round != key.round.round() && !key.round.missing(child);
  const uint32_t bytes = key.result_bytes > 0 ? key.result_bytes : key.length;
  if (key.result_bytes > 0) header.codec = key.codec->kind();
  ShardCounters::bump(counters_.pulled_bytes, key.length);
  ShardCounters::bump(counters_.pulled_wire_bytes, bytes);
  if (!way.by_address || settings_.asynchronous || went_on || bytes < limits::kByAddressBytes) {
    header.length = bytes;
    link->send(header, key.result.data(), key.result);
    return;
  }
  if (key.result_bytes > 0) header.detail = bytes;
  const Offer offer = lease_.offer(key.result.data());
  BufferRef payload = pool_.take(kOfferBytes);
  std::memcpy(payload.data(), &offer, kOfferBytes);
  header.flags |= kFlagByAddress;
  header.length = kOfferBytes;
  const std::byte* data = payload.data();
  link->send(header, data, std::move(payload));
}

void Shard::send_resend(const KeyState& key, uint16_t rank, uint32_t round) {
  ChildLink* link = links_[rank].get();
  if (link) link->send(answer(FrameType::resend, key, round, INT32_MAX), nullptr, {});
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

// ---- failures
// ----------------------------------------------------------------------------------------------

void Shard::send_error(const KeyState& key, uint16_t rank, uint32_t round, ErrorKind kind,
                       const std::string& text) {
  ChildLink* link = links_[rank].get();
  if (!link) return;
  ShardCounters::bump(counters_.errors);
  Header header = answer(FrameType::error, key, round, INT32_MAX);
  header.detail = static_cast<uint32_t>(kind);
  if (kind == ErrorKind::lost) header.detail |= static_cast<uint32_t>(first_departed_) << kErrorRankShift;
  link->send_text(header, text);
}

// Children are told when all have come, and not before: one that heard of it at once would push its next
// round while this one is still open.
void Shard::fail_round(KeyState& key, std::string text) {
  key.failure = std::move(text);
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.contributed(child)) key.round.waive(child);
  }
}

void Shard::tell_failure(KeyState& key, ErrorKind kind) {
  if (std::exchange(key.failure_told, true)) return;
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.missing(child)) continue;
    send_error(key, key.ways[child].rank, key.round.round(), kind, key.failure);
  }
}

void Shard::rank_departed(uint16_t rank) {
  if (settings_.asynchronous) return;  // nobody waits for anybody
  if (first_departed_ < 0) first_departed_ = rank;
  for (auto& [_, key] : keys_) {
    if (!key.round.open() || !key.round.missing(child_of(rank))) continue;
    // It will never be complete: whoever is there is told now, also of a failure that was to be told later.
    const bool fails_now = key.failure.empty();
    if (fails_now) fail_round(key, settings_.ranks[rank] + " has left the job");
    tell_failure(key, fails_now ? ErrorKind::lost : key.failure_kind);
    tell_answered(key);  // without credit they could not send the rest of the tensor, and hear of its end
  }
}

// ---- what people read
// --------------------------------------------------------------------------------------

std::string Shard::describe(const KeyState& key, uint32_t round) const {
  std::string text = key.tensor->name;
  if (key.tensor->cut.pieces() > 1) text += " piece " + std::to_string(piece_of(key.key));
  return text + " (key " + std::to_string(key.tensor->id) + ") round " + std::to_string(round);
}

std::string Shard::describe(const Header& header) {
  const auto it = keys_.find(header.key);
  return it == keys_.end() ? "an unknown tensor" : describe(it->second, header.round);
}

std::string Shard::missing_text(const KeyState& key) const {
  std::string text;
  for (uint16_t child = 0; child < children(); ++child) {
    if (key.round.missing(child)) text += (text.empty() ? "" : ", ") + settings_.children[child];
  }
  return text;
}

int64_t Shard::next_deadline_ns() const {
  int64_t next = open_rounds_ > 0 && settings_.stall_warn_s > 0 ? next_look_ns_ : EventLoop::kNever;
  for (const auto& link : links_) {
    if (link) next = std::min(next, link->credit_due_ns());
  }
  return next;
}

void Shard::on_deadline(int64_t now) {
  for (const auto& link : links_) {
    if (link) link->on_deadline(now);
  }
  if (now < next_look_ns_) return;
  next_look_ns_ = now + kNanosecondsPerSecond;
  tell_stalls(now);
}

void Shard::tell_stalls(int64_t now) {
  constexpr int kMostPerTick = 8;  // one stalled rank stalls every key: a few lines say it
  int told = 0;
  for (auto& [_, key] : keys_) {
    if (!key.round.open() || key.stall_told || !key.failure.empty()) continue;
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

void Shard::sample(const KeyState& key, const char* stage, uint32_t round, const std::byte* data,
                   size_t bytes, DType dtype) {
  if (!key.tensor->traced) return;
  events_.log(kWarning,
              "sample " + describe(key, round) + " " + stage + ": " + sample_text(dtype, data, bytes));
}

void Shard::trace_frame(const char* direction, uint16_t rank, const Header& header) {
  if (settings_.verbose < 2) return;
  events_.log(kInfo, std::string(direction) + " " + settings_.ranks[rank] + " " + name_of(header.type) +
                         " key " + std::to_string(tensor_of(header.key)) + "." +
                         std::to_string(piece_of(header.key)) + " round " + std::to_string(header.round) +
                         " " + std::to_string(header.length) + " bytes");
}

}  // namespace byteps
