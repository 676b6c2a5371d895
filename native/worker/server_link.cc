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

ServerLink::ServerLink(IoThread& thread, uint16_t server, Fd fd, TcpLink::Options options,
                       uint64_t most_bytes, Budget* budget, uint32_t turn, pid_t peer_pid)
    : thread_(thread), server_(server), order_(most_bytes, budget, turn, *this, *this) {
  if (budget) budget->add_link(most_bytes);
  if (peer_pid > 0) peer_.emplace(peer_pid);
  link_ = std::make_shared<TcpLink>(thread.loop(), std::move(fd), options, *this, *this, *this);
}

void ServerLink::submit(Route& route) {
  const Operation& op = *route.op;
  const bool compressed = route.tensor->is_coded(op);
  const bool pool = compressed && thread_.client().codecs().threads() > 0;
  routes_[route.tensor->id] = &route;
  route.left = static_cast<uint32_t>(route.pieces.size());
  route.rounds = op.round + 1;
  route.refusal.clear();
  route.priority = op.priority;
  route.submitted_ns = op.started_ns;
  route.in_step = !compressed;
  // Asked of every operation: the caller may come with other memory each time. Compressed payloads lie in
  // memory of ours.
  route.by_address = peer_ && (compressed || (route.tensor->cut.tensor_bytes >= limits::kByAddressBytes &&
                                              can_offer(route.pushed_memory())));
  order_.submit(route, pool         ? SendOrder::Readiness::one_by_one
                       : compressed ? SendOrder::Readiness::on_demand
                                    : SendOrder::Readiness::ready);
  touched_ = true;
  for (uint32_t at = 0; pool && at < route.pieces.size(); ++at) {
    thread_.post_job(op.priority, {CodecJob::Kind::encode, &route, at});
  }
}

void ServerLink::nudge() { thread_.nudge(*this); }

void ServerLink::settle() {
  if (std::exchange(touched_, false) && link_->alive()) link_->flush();
}

void ServerLink::abandon(Route& route) {
  order_.forget(route);
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

bool ServerLink::next(OutFrame& out) {
  out = {};
  out.header.sender = thread_.client().settings().rank;
  for (;;) {
    const NextStep step = order_.next(now_ns());
    if (step.what == NextStep::Do::wait) return false;
    Route& route = static_cast<Route&>(*step.transfer);
    if (step.what == NextStep::Do::prepare) {
      if (prepare(route, step.position)) {
        order_.prepared(step);
      } else {
        order_.failed(step, now_ns());
      }
      continue;
    }
    if (const std::string why = refusal(route); !why.empty()) {
      fill_refuse(out, route, step.position, why);
      order_.refused(step, now_ns());
      return true;
    }
    if (!gather(out, route, step.position)) {  // it takes the route back in a moment
      out.keep.reset();
      order_.failed(step, now_ns());
      continue;
    }
    fill_push(out, step);
    return true;
  }
}

// What the contribution of this machine to a piece takes on the wire: nothing if another one has the root of
// a broadcast, and float32 for the sum of half types.
uint32_t ServerLink::wire_bytes(const Transfer& transfer, uint32_t position) const {
  const auto& route = static_cast<const Route&>(transfer);
  const Operation& op = *route.op;
  const uint32_t piece = route.pieces[position];
  if (route.tensor->is_coded(op)) return route.tensor->codec->of(piece)->payload_bytes;
  const Client& client = thread_.client();
  if ((op.flags & kFlagBroadcast) && client.child_of(op.root) != client.child()) return 0;
  const bool wide = route.tensor->group && LocalGroup::sums_wide(op);
  return route.tensor->cut.length_of(piece) * (wide ? 2 : 1);
}

bool ServerLink::gather(OutFrame& out, Route& route, uint32_t position) {
  LocalGroup* group = route.tensor->group;
  if (!group || route.tensor->is_coded(*route.op)) return true;
  const uint32_t piece = route.pieces[position];
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
  // Once: the sum may lie where this rank's own contribution was.
  return was_sent(route.state_of(position)) || group->gather(*route.op, piece);
}

void ServerLink::fill_refuse(OutFrame& out, const Route& route, uint32_t position, const std::string& why) {
  out.keep = thread_.pool().take(why.size());
  std::memcpy(out.keep.data(), why.data(), why.size());
  out.payload = out.keep.data();
  out.header.type = FrameType::refuse;
  out.header.dtype = static_cast<uint8_t>(route.tensor->dtype);
  out.header.key = make_key(route.tensor->id, route.pieces[position]);
  out.header.round = route.op->round;
  out.header.length = static_cast<uint32_t>(why.size());
}

void ServerLink::fill_push(OutFrame& out, const NextStep& step) {
  const Route& route = static_cast<const Route&>(*step.transfer);
  Operation& op = *route.op;
  const uint32_t piece = route.pieces[step.position];
  const uint32_t length = route.tensor->cut.length_of(piece);
  const uint32_t root = thread_.client().child_of(op.root);
  const bool coded = route.tensor->is_coded(op);
  const bool wide = static_cast<bool>(out.keep);  // float32 sums, see gather()
  const uint32_t bytes = coded ? length : step.bytes;
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

  const uint64_t waited_bytes = order_.sent(step, now_ns());
  if (waited_bytes > 0) op.waited_bytes.fetch_add(waited_bytes, std::memory_order_relaxed);
  if (order_.asks_for_credit()) header.flags |= kFlagWantCredit;
  thread_.client().count_push(bytes, step.bytes);
  thread_.client().sample(*route.tensor, route.tensor->group ? "push of this machine" : "push", header.round,
                          piece, data, bytes, wide ? DType::f32 : route.tensor->dtype);
  thread_.trace_frame(">", *this, header);
}

// ---- receiving

ServerLink::Piece ServerLink::find(const Header& header) const {
  const auto it = routes_.find(tensor_of(header.key));
  if (it == routes_.end()) return {};
  Route& route = *it->second;
  if (!route.op || route.op->round != header.round) return {};
  const auto position = route.position_of(piece_of(header.key));
  if (!position || route.state_of(*position) == PieceState::answered) return {};
  return {&route, *position};
}

// Only what has been pushed can be answered. A server that answers earlier is wrong about the round: its
// result is of something else, and what waits to be sent would outlive the operation.
void ServerLink::check_pushed(const Header& header, const Piece& about) const {
  const auto it = routes_.find(tensor_of(header.key));
  if (it == routes_.end()) return;
  const bool begun = static_cast<int32_t>(header.round - it->second->rounds) < 0;
  if (begun && (!about.route || was_sent(about.route->state_of(about.position)))) return;
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
  if (header.received > order_.sent_bytes()) throw WireError("the server claims more bytes than it was sent");
  if (header.received > order_.received_bytes()) {
    order_.credit(header.received, now_ns(), [this] { return link_->round_trip_ns(); });
    touched_ = true;  // more may be sent
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
      order_.ask_again(*route, position);
      touched_ = true;
      return;
    case FrameType::want:
      order_.wanted(*route, position);
      touched_ = true;
      return;
    case FrameType::stall:
      thread_.client().stalled(op, text());
      return;
    case FrameType::error: {
      const Client& client = thread_.client();
      const bool memory = (header.detail & 0xFF) == static_cast<uint32_t>(ErrorKind::memory);
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

void ServerLink::answered(Route& route, uint32_t position) {
  if (order_.answered(route, position)) touched_ = true;
  piece_done(route);
}

// What has gone out of its order, or was asked for again, leaves a place in the order that the operation does
// not need any more. The wire has sent what is answered, unless the server answers what it has not read.
void ServerLink::piece_done(Route& route) {
  if (--route.left > 0) return;
  order_.forget(route);
  if (link_->sending()) let_go(route);
  thread_.release(route);
}

void ServerLink::on_end(byteps::Link&, byteps::Link::End end, const std::string& reason) {
  thread_.link_ended(*this, end, reason);
}

}  // namespace byteps
