#include "worker/server_link.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "local/group.h"
#include "worker/client.h"
#include "worker/io_thread.h"

namespace byteps {
namespace {

constexpr uint32_t kUnansweredPieces = 2;  // one is sent while the other is answered

// Partitions are larger than the window, so in the order of the tensor all workers would send to one server
// at a time. By the part of its own pieces that a link is through with, every server gets its share at once.
// `turn` of 2^32 puts links that are equally far in an order, which begins elsewhere on every worker.
uint64_t progress(const Route& route, uint32_t at, uint32_t turn) {
  return ((uint64_t{at} << 32) + turn) / route.pieces.size();
}

}  // namespace

ServerLink::ServerLink(IoThread& thread, uint16_t server, Endpoint& endpoint, const LinkOptions& options,
                       uint64_t most_bytes, Budget* budget, uint32_t turn, pid_t peer_pid)
    : thread_(thread), server_(server), window_(most_bytes, true), turn_(turn), budget_(budget) {
  if (budget_) budget_->add_link(most_bytes);
  if (peer_pid > 0) peer_.emplace(peer_pid);
  link_ = endpoint.open(thread.loop(), options, *this, *this, *this);
}

void ServerLink::submit(Route& route) {
  routes_[route.tensor->id] = &route;
  route.left = static_cast<uint32_t>(route.pieces.size());
  route.answered.assign(route.pieces.size(), false);
  // Asked of every operation: the caller may come with other memory each time.
  route.by_address =
      peer_ && route.tensor->cut.tensor_bytes >= limits::kByAddressBytes && can_offer(route.pushed_memory());
  if (route.tensor->group) route.gathered.assign(route.pieces.size(), false);
  route.link_bytes_at_start = window_.sent_bytes();
  route.sent.assign(route.pieces.size(), false);
  route.sent_pieces = 0;
  route.sent_bytes = 0;
  route.rounds = route.op->round + 1;
  if (route.tensor->is_coded(*route.op)) {
    route.by_address = peer_.has_value();  // payloads lie in memory of ours
    route.encoded.assign(route.pieces.size(), false);
    route.refusal.clear();
    if (thread_.client().codecs().threads() > 0) {
      for (uint32_t at = 0; at < route.pieces.size(); ++at) {
        thread_.post_job(route.op->priority, {CodecJob::Kind::encode, &route, at});
      }
      return;
    }
  }
  // Without credit there is no queue worth ordering: first come, first served.
  const int32_t priority = window_.limited() ? route.op->priority : 0;
  enqueue(priority, {&route, 0, static_cast<uint32_t>(route.pieces.size())});
}

void ServerLink::enqueue(int32_t priority, const Ready& ready) {
  ready_.push(priority, ready);
  ++ready.route->queued;
  touched_ = true;
}

void ServerLink::dequeue() {
  --ready_.top().route->queued;
  ready_.pop();
}

void ServerLink::nudge() { thread_.nudge(*this); }

void ServerLink::settle() {
  if (std::exchange(touched_, false) && link_->alive()) link_->flush();
}

// Takes its places in the order away.
void ServerLink::take_out(Route& route) {
  if (std::exchange(route.queued, 0) == 0) return;
  ready_.remove_if([&](const Ready& ready) { return ready.route == &route; });
  std::erase_if(unanswered_, [&](const auto& waiting) { return waiting.item.route == &route; });
}

void ServerLink::abandon(Route& route) {
  take_out(route);
  touched_ = true;  // what was waiting for its turn may be gone
  // What the server has not read yet it drops, and asks again for what belongs to other operations.
  if (peer_) lease_.withdraw();
  let_go(route);
}

// Neither the wire nor a frame that is coming in keeps pointing at the operation.
void ServerLink::let_go(const Route& route) {
  if (about_.route == &route) about_ = {};
  const size_t bytes = route.tensor->cut.tensor_bytes;
  link_->let_go(route.op->src, route.op->src + bytes, thread_.pool());
  link_->let_go(route.op->landing(), route.op->landing() + bytes, thread_.pool());
  if (!route.tensor->is_coded(*route.op)) return;
  for (const uint32_t piece : route.pieces) {
    const PartitionCodec& partition = *route.tensor->codec->of(piece);
    for (const auto* memory : {&partition.payload, &partition.landing}) {
      link_->let_go(memory->data(), memory->data() + memory->size(), thread_.pool());
    }
  }
}

// ---- sending
// -----------------------------------------------------------------------------------------------

bool ServerLink::next(OutFrame& out) {
  out = {};
  out.header.sender = thread_.client().settings().rank;
  while (!ready_.empty()) {
    Ready& ready = ready_.top();
    if (ready.why != Why::again && ready.route->sent[ready.at]) {  // because it was wanted
      if (++ready.at == ready.end) dequeue();
      continue;
    }
    if (must_wait_for_others(ready)) {
      unanswered_.push_back(ready_.take());
      continue;
    }
    if (!prepare(ready)) {
      dequeue();
      continue;
    }
    const uint32_t piece = ready.route->pieces[ready.at];
    const uint32_t length = wire_bytes(*ready.route, piece);
    const bool overtakes = may_overtake(ready);
    if (!has_room(length) && !overtakes) break;
    if (const std::string why = refusal(*ready.route); !why.empty()) {
      fill_refuse(out, ready, why);
      if (++ready.at == ready.end) dequeue();
      return true;
    }
    if (!take_turn(ready, piece, length, overtakes)) return false;
    if (!gather(out, ready)) {  // the operation has failed, and takes the route back in a moment
      if (budget_) budget_->received(length, now_ns(), [] { return int64_t{0}; });
      dequeue();
      continue;
    }
    fill_push(out, ready);
    if (++ready.at == ready.end) dequeue();
    return true;
  }
  if (std::exchange(waiting_, false)) budget_->withdraw(*this);
  return false;
}

// What the contribution of this machine to a piece takes on the wire: nothing if another one has the root of
// a broadcast, and float32 for the sum of half types.
uint32_t ServerLink::wire_bytes(const Route& route, uint32_t piece) const {
  const Operation& op = *route.op;
  if (route.tensor->is_coded(op)) return route.tensor->codec->of(piece)->payload_bytes;
  const Client& client = thread_.client();
  if ((op.flags & kFlagBroadcast) && client.child_of(op.root) != client.child()) return 0;
  const bool wide = route.tensor->group && LocalGroup::sums_wide(op);
  return route.tensor->cut.length_of(piece) * (wide ? 2 : 1);
}

// Not if it is compressed: each rank's threads finish pieces in an order of their own, so the first two of
// one need not be those of another, and all would wait.
bool ServerLink::must_wait_for_others(const Ready& ready) const {
  const Route& route = *ready.route;
  return budget_ && window_.limited() && ready.why == Why::in_order && !route.tensor->is_coded(*route.op) &&
         route.left == route.pieces.size() && ready.at >= kUnansweredPieces;
}

// What others wait for always does: their credit comes back with it.
bool ServerLink::may_overtake(const Ready& ready) const {
  if (!budget_) return false;
  if (ready.why == Why::wanted) return true;
  return !overtook_ && window_.under_way() > 0 && ready.route->op->priority > last_priority_;
}

bool ServerLink::has_room(uint64_t bytes) {
  if (!window_.admits(bytes)) return false;
  const uint64_t under_way = window_.under_way();
  return !budget_ || !window_.limited() || under_way == 0 ||
         under_way + bytes <= budget_->part(window_.sent_bytes(), bytes);
}

bool ServerLink::take_turn(const Ready& ready, uint32_t piece, uint32_t length, bool overtakes) {
  if (!budget_) return true;
  const Operation& op = *ready.route->op;
  const int32_t priority = window_.limited() ? op.priority : 0;
  const Budget::Place place{priority, op.started_ns, progress(*ready.route, ready.at, turn_), piece};
  waiting_ = !budget_->admit(*this, place, length, now_ns());
  if (waiting_ && overtakes) {
    budget_->pass(*this, length, now_ns());
    if (ready.why != Why::wanted) overtook_ = true;
    waiting_ = false;
  }
  return !waiting_;
}

bool ServerLink::gather(OutFrame& out, const Ready& ready) {
  Route& route = *ready.route;
  LocalGroup* group = route.tensor->group;
  if (!group || route.tensor->is_coded(*route.op)) return true;
  const uint32_t piece = route.pieces[ready.at];
  if (LocalGroup::sums_wide(*route.op)) {  // made anew for every sending: the contributions are still there
    const uint32_t elements = route.tensor->cut.length_of(piece) / size_of(route.tensor->dtype);
    try {
      out.keep = thread_.pool().take(elements * sizeof(float));
    } catch (const std::bad_alloc& lack) {
      route.tensor->lack_memory(route.op, lack.what());
      return false;
    }
    return group->gather_wide(*route.op, piece, reinterpret_cast<float*>(out.keep.data()));
  }
  if (!route.gathered[ready.at]) route.gathered[ready.at] = group->gather(*route.op, piece);
  return route.gathered[ready.at];
}

void ServerLink::fill_refuse(OutFrame& out, const Ready& ready, const std::string& why) {
  Route& route = *ready.route;
  route.sent[ready.at] = true;  // it will be answered like a contribution
  out.keep = thread_.pool().take(why.size());
  std::memcpy(out.keep.data(), why.data(), why.size());
  out.payload = out.keep.data();
  out.header.type = FrameType::refuse;
  out.header.dtype = static_cast<uint8_t>(route.tensor->dtype);
  out.header.key = make_key(route.tensor->id, route.pieces[ready.at]);
  out.header.round = route.op->round;
  out.header.length = static_cast<uint32_t>(why.size());
}

void ServerLink::fill_push(OutFrame& out, Ready& ready) {
  Route& route = *ready.route;
  Operation& op = *route.op;
  const uint32_t piece = route.pieces[ready.at];
  const uint32_t length = route.tensor->cut.length_of(piece);
  const uint32_t root = thread_.client().child_of(op.root);
  const bool coded = route.tensor->is_coded(op);
  const bool wide = static_cast<bool>(out.keep);  // float32 sums, see gather()
  const uint32_t sent = wire_bytes(route, piece);
  const uint32_t bytes = coded ? length : sent;
  const bool empty = bytes == 0;
  const std::byte* data = wide ? out.keep.data() : route.pushed_memory() + route.tensor->cut.offset_of(piece);
  Header& header = out.header;
  header.type = FrameType::push;
  header.flags = op.flags;
  header.detail = coded ? 0 : root;
  header.dtype = static_cast<uint8_t>(wide ? DType::f32 : route.tensor->dtype);
  header.key = make_key(route.tensor->id, piece);
  header.round = op.round;
  header.priority = op.priority;
  header.length = bytes;
  out.payload = data;
  if (coded) {
    fill_coded(out, route, piece);
  } else if (route.by_address && !wide && length >= limits::kByAddressBytes) {
    header.flags |= kFlagByAddress;  // of an empty contribution: the answer may be
    if (!empty) {
      const Offer offer = lease_.offer(data);
      out.keep = thread_.pool().take(kOfferBytes);
      std::memcpy(out.keep.data(), &offer, kOfferBytes);
      out.payload = out.keep.data();
      header.length = kOfferBytes;
    }
  }

  window_.sent(sent, now_ns());
  if (ready.why != Why::wanted) last_priority_ = op.priority;
  // To another machine it is asked for with every piece: the part of the window that is this link's can
  // become smaller at any time, and workers that wait for each other in a circle get out of it only by
  // credit.
  const bool nearly_used = budget_ || !window_.admits(limits::kPieceBytes);
  if (window_.limited() && (nearly_used || window_.sent_bytes() - asked_at_bytes_ >= window_.bytes() / 4)) {
    header.flags |= kFlagWantCredit;
    asked_at_bytes_ = window_.sent_bytes();
  }
  route.sent_bytes += sent;
  const bool again = route.sent[ready.at];
  route.sent[ready.at] = true;
  if (!again && ++route.sent_pieces == route.pieces.size()) {
    const uint64_t between = window_.sent_bytes() - route.link_bytes_at_start;
    op.waited_bytes.fetch_add(between - route.sent_bytes, std::memory_order_relaxed);
  }
  thread_.client().count_push(bytes, sent);
  thread_.client().sample(*route.tensor, route.tensor->group ? "push of this machine" : "push", header.round,
                          piece, data, bytes, wide ? DType::f32 : route.tensor->dtype);
  thread_.trace_frame(">", *this, header);
}

// ---- receiving
// ---------------------------------------------------------------------------------------------

ServerLink::Piece ServerLink::find(const Header& header) const {
  const auto it = routes_.find(tensor_of(header.key));
  if (it == routes_.end()) return {};
  Route& route = *it->second;
  if (!route.op || route.op->round != header.round) return {};
  const auto at = std::lower_bound(route.pieces.begin(), route.pieces.end(), piece_of(header.key));
  if (at == route.pieces.end() || *at != piece_of(header.key)) return {};
  const auto position = static_cast<size_t>(at - route.pieces.begin());
  if (route.answered[position]) return {};
  return {&route, position};
}

// Only what has been pushed can be answered. A server that answers earlier is wrong about the round: its
// result is of something else, and what waits to be sent would outlive the operation.
void ServerLink::check_pushed(const Header& header, const Piece& about) const {
  const auto it = routes_.find(tensor_of(header.key));
  if (it == routes_.end()) return;
  const bool begun = static_cast<int32_t>(header.round - it->second->rounds) < 0;
  if (begun && (!about.route || about.route->sent[about.position])) return;
  throw WireError(std::string(name_of(header.type)) + ": " + it->second->tensor->name + " piece " +
                  std::to_string(piece_of(header.key)) + " round " + std::to_string(header.round) +
                  " is answered, and was not pushed yet");
}

// The root of a broadcast has the bytes already, and with it all ranks of its machine.
bool ServerLink::keeps_own(const Operation& op) const {
  const Client& client = thread_.client();
  return (op.flags & kFlagBroadcast) && client.child_of(op.root) == client.child();
}

std::byte* ServerLink::begin(const Header& header) {
  thread_.trace_frame("<", *this, header);
  if (header.received > window_.sent_bytes())
    throw WireError("the server claims more bytes than it was sent");
  if (header.received > window_.received_bytes()) {
    const int64_t now = now_ns();
    const auto round_trip = [this] { return link_->round_trip_ns(); };
    if (budget_) budget_->received(header.received - window_.received_bytes(), now, round_trip);
    window_.received(header.received, now, round_trip);
    overtook_ = false;
    touched_ = true;  // credit came back: more may be sent
  }
  about_ = {};
  if (header.type == FrameType::credit) return nullptr;
  about_ = find(header);
  if (header.type != FrameType::want) check_pushed(header, about_);
  switch (header.type) {
    case FrameType::resend:
    case FrameType::want:
      return nullptr;
    case FrameType::error:
    case FrameType::stall:
      small_.resize(header.length);
      return small_.data();
    case FrameType::result:
      return about_.route ? begin_result(header) : nullptr;
    default:
      throw WireError(std::string(name_of(header.type)) + ": not a frame that a server sends");
  }
}

// Where the payload of a RESULT lands.
std::byte* ServerLink::begin_result(const Header& header) {
  const Route& route = *about_.route;
  if (header.length == 0) {
    if (!keeps_own(*route.op)) throw WireError("RESULT: " + route.tensor->name + ": empty");
    return nullptr;
  }
  if ((header.flags & kFlagByAddress) && !peer_)
    throw WireError("RESULT: by address on a connection where that was not agreed");
  const uint32_t piece = route.pieces[about_.position];
  if (header.codec != 0) return begin_coded(header, route, piece);
  if (header.flags & kFlagByAddress) return reinterpret_cast<std::byte*>(&offer_);
  if (header.length != route.tensor->cut.length_of(piece)) {
    throw WireError("RESULT: " + route.tensor->name + ": " + std::to_string(header.length) +
                    " bytes, expected " + std::to_string(route.tensor->cut.length_of(piece)));
  }
  return route.op->landing() + route.tensor->cut.offset_of(piece);
}

void ServerLink::end(const Header& header, bool landed) {
  const auto [route, position] = std::exchange(about_, {});
  if (!route) return;  // an answer to an operation that has been given up
  Operation& op = *route->op;
  switch (header.type) {
    case FrameType::result: {
      const uint32_t piece = route->pieces[position];
      if (landed && header.codec != 0) return take_coded(header, *route, position);
      if (landed) {
        const uint32_t bytes = route->tensor->cut.length_of(piece);
        if (header.flags & kFlagByAddress)
          fetch(header, *route, op.landing() + route->tensor->cut.offset_of(piece), bytes);
        this->landed(*route, piece, bytes);
      } else if (route->tensor->group) {
        route->tensor->group->publish(op, piece);
      }
      answered(*route, position);
      return;
    }
    case FrameType::resend:
      return push_next(*route, static_cast<uint32_t>(position), Why::again);
    case FrameType::want:
      if (route->sent[position] || route->tensor->is_coded(op)) return;
      return push_next(*route, static_cast<uint32_t>(position), Why::wanted);
    case FrameType::stall:
      thread_.client().stalled(op, text());
      return;
    case FrameType::error: {
      const Client& client = thread_.client();
      const bool memory = (header.detail & 0xFF) == static_cast<uint32_t>(FailureKind::memory);
      const std::string who =
          memory ? client.settings().servers[server_] + ": " : "";  // the server's, not a rank's
      Failure failure = client.failure_of(header.detail, route->tensor->name + ": " + who + text());
      if (route->tensor->group) {
        route->tensor->group->publish_failure(op, failure);
      } else {
        op.fail(std::move(failure));
      }
      answered(*route, position);
      return;
    }
    default:
      return;
  }
}

// Of an ERROR or STALL.
std::string ServerLink::text() const {
  return printable({reinterpret_cast<const char*>(small_.data()), small_.size()});
}

void ServerLink::push_next(Route& route, uint32_t position, Why why) {
  enqueue(INT32_MAX, {&route, position, position + 1, why});
}

// The elements of a result lie in the operation's memory.
void ServerLink::landed(Route& route, uint32_t piece, uint32_t wire_bytes) {
  const Tensor& tensor = *route.tensor;
  Operation& op = *route.op;
  const uint32_t bytes = tensor.cut.length_of(piece);
  thread_.client().count_pull(bytes, wire_bytes);
  thread_.client().sample(tensor, tensor.group ? "pull of this machine" : "pull", op.round, piece,
                          op.landing() + tensor.cut.offset_of(piece), bytes, tensor.dtype);
  if (tensor.group) tensor.group->publish(op, piece);
}

// The result itself, out of the server's memory. Why it is still there: see Shard::send_result.
void ServerLink::fetch(const Header& header, Route& route, std::byte* to, uint32_t bytes) {
  const auto copied = peer_->copy(to, offer_, bytes);
  if (copied == PeerMemory::Copied::yes) return;
  const std::string what = "RESULT: cannot read " + std::to_string(bytes) + " bytes of " +
                           route.tensor->name + " round " + std::to_string(header.round) + " at " +
                           std::to_string(offer_.address) + " from " +
                           thread_.client().settings().servers[server_] + ", ";
  if (copied == PeerMemory::Copied::withdrawn) throw PeerGone(what + "which has closed");
  if (copied == PeerMemory::Copied::gone) throw PeerGone(what + peer_->error_text());
  throw WireError(what + peer_->error_text() + "; BYTEPS_ENABLE_IPC=0 sends payloads over sockets only");
}

void ServerLink::answered(Route& route, size_t position) {
  const bool first = route.left == route.pieces.size();
  route.answered[position] = true;
  if (first) {  // what follows it may go
    std::erase_if(unanswered_, [&](auto& waiting) {
      if (waiting.item.route != &route) return false;
      ready_.put_back(std::move(waiting));
      touched_ = true;
      return true;
    });
  }
  piece_done(route);
}

// What has gone out of its order, or was asked for again, leaves a place in the order that the operation does
// not need any more. The wire has sent what is answered, unless the server answers what it has not read.
void ServerLink::piece_done(Route& route) {
  if (--route.left > 0) return;
  take_out(route);
  if (link_->sending()) let_go(route);
  thread_.release(route);
}

void ServerLink::on_end(byteps::Link&, byteps::Link::End end, const std::string& reason) {
  thread_.link_ended(*this, end, reason);
}

}  // namespace byteps
