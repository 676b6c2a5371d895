#include "worker/server_link.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "local/group.h"
#include "observe/ring.h"
#include "worker/client.h"
#include "worker/io_thread.h"

namespace byteps {

ServerLink::ServerLink(IoThread& thread, uint16_t server, uint64_t most_bytes, Budget* budget, uint32_t turn,
                       pid_t peer_pid)
    : thread_(thread),
      server_(server),
      peer_pid_(peer_pid),
      order_(most_bytes, budget, turn, *this, *this),
      payloads_(thread, server, peer_pid) {
  if (budget) budget->add_link(most_bytes);
}

// ---- connections

void ServerLink::connect(Endpoint& endpoint, const LinkOptions& options, uint32_t tag) {
  auto link = endpoint.open(thread_.loop(), options, *this, *this, *this);
  if (link_) {
    disconnect();
    past_ = traffic();
  }
  link_ = std::move(link);
  tag_ = tag;
  touched_ = true;
}

void ServerLink::disconnect() {
  if (!link_->alive()) return;
  link_->close();
  replay();
}

byteps::Link::Traffic ServerLink::traffic() const {
  const auto& now = link_->traffic();
  return {past_.sent_bytes + now.sent_bytes, past_.received_bytes + now.received_bytes};
}

// The connection is gone. What was sent and has no answer is to be sent again over the next one: the server
// has it, or has answered it, or never saw it, and knows which. A result that had landed in part, where the
// contribution was, does no harm: the server that has sent it has it still, and throws away what comes again.
void ServerLink::replay() {
  about_ = {};
  order_.disconnected();
  std::vector<Route*> active;
  for (const auto& [_, route] : routes_) {
    if (route->op && !route->dropped) active.push_back(route);
  }
  std::sort(active.begin(), active.end(), [](const Route* a, const Route* b) {
    return std::tuple(-int64_t{a->priority}, a->submitted_ns) <
           std::tuple(-int64_t{b->priority}, b->submitted_ns);
  });
  uint64_t pieces = 0;
  for (Route* route : active) pieces += order_.send_again(*route);
  thread_.client().count_again(pieces);
}

void ServerLink::submit(Route& route) {
  const Operation& op = *route.op;
  payloads_.choose(route);  // before anything that may fail: abandon() needs it
  routes_[route.tensor->id] = &route;
  route.left = static_cast<uint32_t>(route.pieces.size());
  route.rounds = op.round + 1;
  route.refusal.clear();
  route.priority = op.priority;
  route.submitted_ns = op.started_ns;
  route.in_step = true;
  record({.stage = Stage::queued,
          .peer = server_,
          .round = op.round,
          .key = whole_key(route.tensor->id),
          .at_ns = thread_.now_ns()});
  order_.submit(route, route.payload->begin(route));
  touched_ = true;
}

void ServerLink::nudge() { thread_.nudge(*this); }

void ServerLink::settle() {
  if (std::exchange(touched_, false) && link_->alive()) link_->flush();
}

void ServerLink::abandon(Route& route) {
  payloads_.withdraw_offers();
  let_go(route);  // may end the link, which puts what was sent into the order again
  order_.forget(route);
  touched_ = true;  // what was waiting for its turn may be gone
}

// Neither the wire nor a frame that is coming in keeps pointing at the operation.
void ServerLink::let_go(const Route& route) {
  if (about_.route == &route) about_ = {};
  route.payload->visit_memory(route, [this](const std::byte* begin, size_t bytes) {
    link_->let_go(begin, begin + bytes, thread_.pool());
  });
}

// ---- sending

bool ServerLink::next(OutFrame& out) {
  out = {};
  out.header.sender = thread_.client().settings().rank;
  for (;;) {
    const NextStep step = order_.next(thread_.now_ns());
    if (step.what == NextStep::Do::wait) return false;
    Route& route = static_cast<Route&>(*step.transfer);
    if (step.what == NextStep::Do::prepare) {
      if (route.payload->prepare(route, step.position)) {
        order_.prepared(step);
      } else {
        order_.failed(step, thread_.now_ns());
      }
      continue;
    }
    if (const std::string why = route.why_refused(); !why.empty()) {
      fill_refuse(out, route, step.position, why);
      order_.refused(step, thread_.now_ns());
      return true;
    }
    if (fill_push(out, route, step)) return true;
    out.keep.reset();
    order_.failed(step, thread_.now_ns());  // the operation has failed, and takes the route back in a moment
  }
}

uint32_t ServerLink::wire_bytes(const Transfer& transfer, uint32_t position) const {
  const auto& route = static_cast<const Route&>(transfer);
  return route.payload->wire_bytes(route, position);
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

bool ServerLink::fill_push(OutFrame& out, Route& route, const NextStep& step) {
  const Tensor& tensor = *route.tensor;
  Operation& op = *route.op;
  const uint32_t piece = route.pieces[step.position];
  Header& header = out.header;
  header.type = FrameType::push;
  header.flags = op.flags;
  header.key = make_key(tensor.id, piece);
  header.round = op.round;
  header.priority = op.priority;
  const auto elements = route.payload->fill(out, route, step.position);
  if (!elements) return false;
  const int64_t now = thread_.now_ns();
  const uint64_t waited_bytes = order_.sent(step, now);
  if (waited_bytes > 0) op.waited_bytes.fetch_add(waited_bytes, std::memory_order_relaxed);
  if (order_.asks_for_credit()) header.flags |= kFlagWantCredit;
  record({.stage = Stage::sent,
          .peer = server_,
          .round = op.round,
          .key = header.key,
          .at_ns = now,
          .bytes = step.bytes});
  thread_.client().count_push(elements->bytes, step.bytes);
  thread_.client().sample(tensor, tensor.group ? "push of this machine" : "push", header.round, piece,
                          elements->data, elements->bytes, elements->dtype);
  thread_.trace_frame(">", *this, header);
  return true;
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
    const int64_t now = thread_.now_ns();
    order_.credit(header.received, now, [this] { return link_->round_trip_ns(); });
    touched_ = true;  // more may be sent
    const uint64_t in_flight = order_.sent_bytes() - order_.received_bytes();
    record({.stage = Stage::credit, .peer = server_, .at_ns = now, .bytes = saturated(in_flight)});
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
  if ((header.flags & kFlagByAddress) && !payloads_.readable())
    throw WireError("RESULT: by address on a connection where that was not agreed");
  return route.payload->landing(header, route, about_.position);
}

void ServerLink::end(const Header& header, bool landed) {
  const auto [route, position] = std::exchange(about_, {});
  if (!route) return;  // an answer to an operation that has been given up
  Operation& op = *route->op;
  switch (header.type) {
    case FrameType::result:
      return end_result(header, *route, position, landed);
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
      const bool memory = (header.detail & 0xFF) == static_cast<uint32_t>(FailureKind::memory);
      const std::string who =
          memory ? thread_.epoch().servers[server_].name + ": " : "";  // the server's, not a rank's
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

void ServerLink::end_result(const Header& header, Route& route, uint32_t position, bool has_payload) {
  const bool by_address = (header.flags & kFlagByAddress) != 0;  // then the payload says only where it is
  const uint32_t elements = route.tensor->cut.length_of(route.pieces[position]);
  record({.stage = Stage::landed,
          .peer = server_,
          .round = header.round,
          .key = header.key,
          .at_ns = thread_.now_ns(),
          .bytes = !by_address         ? header.length
                   : header.codec != 0 ? header.detail
                                       : elements});
  if (!has_payload) {
    if (route.tensor->group) route.tensor->group->publish(*route.op, route.pieces[position]);
    return answered(route, position);
  }
  const auto wire_bytes = route.payload->landed(header, route, position);
  if (order_.answered(route, position)) touched_ = true;
  if (wire_bytes) landed(route, position, *wire_bytes);
}

// Of an ERROR or STALL.
std::string ServerLink::text() const {
  return printable({reinterpret_cast<const char*>(small_.data()), small_.size()});
}

// The elements of a result lie in the operation's memory.
void ServerLink::landed(Route& route, uint32_t position, uint32_t wire_bytes) {
  const Tensor& tensor = *route.tensor;
  Operation& op = *route.op;
  const uint32_t piece = route.pieces[position];
  const uint32_t bytes = tensor.cut.length_of(piece);
  thread_.client().count_pull(bytes, wire_bytes);
  thread_.client().sample(tensor, tensor.group ? "pull of this machine" : "pull", op.round, piece,
                          op.landing() + tensor.cut.offset_of(piece), bytes, tensor.dtype);
  if (tensor.group) tensor.group->publish(op, piece);
  piece_done(route);
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

// ---- what the pool of codecs did

void ServerLink::work_on(const CodecJob& job) { thread_.codec_done(payloads_.compressed().run(job)); }

void ServerLink::codec_done(const CodecOutcome& outcome) {
  Route& route = *outcome.job.route;
  const uint32_t position = outcome.job.position;
  const bool failed = outcome.end == CodecOutcome::End::codec_failed;
  if (outcome.job.kind == CodecJob::Kind::decode) {
    if (failed) return refuse_result(route, position, outcome.error);
    return landed(route, position, outcome.job.bytes);
  }
  if (outcome.end == CodecOutcome::End::operation_failed) return;  // it takes the route back in a moment
  if (failed) route.refusal = route.tensor->name + ": " + outcome.error;
  order_.ready(route, position);
  touched_ = true;
}

void ServerLink::refuse_result(const Route& route, uint32_t position, const std::string& why) {
  if (!link_->alive()) return;
  link_->close();
  on_end(*link_, byteps::Link::End::violation,
         "RESULT: " + route.tensor->name + " piece " + std::to_string(route.pieces[position]) + " round " +
             std::to_string(route.op->round) + " is not a payload of its codec: " + why);
}

void ServerLink::on_end(byteps::Link&, byteps::Link::End end, const std::string& reason) {
  try {
    replay();
  } catch (const std::bad_alloc&) {  // and so there is nothing to go on with
    end = byteps::Link::End::exhausted;
  }
  thread_.link_ended(*this, end, reason);
}

}  // namespace byteps
