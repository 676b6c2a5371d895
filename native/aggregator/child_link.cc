#include "aggregator/child_link.h"

#include <cstring>

#include "aggregator/shard.h"
#include "base/error.h"
#include "base/tuning.h"
#include "observe/ring.h"
#include "wire/limits.h"

namespace byteps {

ChildLink::ChildLink(Shard& shard, EventLoop& loop, const Names& names, Endpoint& endpoint,
                     const LinkOptions& options, pid_t peer_pid)
    : shard_(shard), rank_(names.rank), number_(names.number), tag_(names.tag) {
  if (peer_pid > 0) peer_.emplace(peer_pid);
  link_ = endpoint.open(loop, options, *this, *this, *this);
  same_machine_ = link_->same_machine();
  patience_ns_ = same_machine_ ? tuning::kSameMachinePatienceNs : tuning::kPatienceNs;
}

// Called while a frame of another child is handled: what goes wrong here is the end of this connection, not
// of that.
void ChildLink::send(Header header, const std::byte* payload, BufferRef keep) noexcept {
  if (!link_->alive()) return;
  header.sender = rank_;
  touched_ = true;
  waiting_bytes_ += kHeaderBytes + header.length;
  if (waiting_bytes_ > shard_.most_waiting_bytes()) {
    return link_->give_up(Link::End::violation, "it does not read its answers, and too many wait for it");
  }
  try {
    out_.push(shard_.settings().scheduled ? header.priority : 0, OutFrame{header, payload, std::move(keep)});
  } catch (const std::bad_alloc& lack) {
    link_->give_up(Link::End::exhausted, lack.what());
  }
}

void ChildLink::send_copy(Header header, const void* data, size_t bytes) noexcept {
  try {
    BufferRef buffer = shard_.pool().take_unasked(bytes);
    std::memcpy(buffer.data(), data, bytes);
    header.length = static_cast<uint32_t>(bytes);
    const std::byte* copy = buffer.data();
    send(header, copy, std::move(buffer));
  } catch (const std::bad_alloc& lack) {
    link_->give_up(Link::End::exhausted, lack.what());
  }
}

void ChildLink::send_text(Header header, std::string_view text) noexcept {
  send_copy(header, text.data(), std::min(text.size(), limits::kMaxSmallBytes));
}

bool ChildLink::next(OutFrame& out) {
  const uint64_t received = credit();
  if (out_.empty()) {
    if (told_bytes_ >= wanted_bytes_ || received <= told_bytes_) return false;
    out = {};
    out.header.type = FrameType::credit;
    out.header.sender = rank_;
  } else {
    out = std::move(out_.top());
    out_.pop();
    waiting_bytes_ -= kHeaderBytes + out.header.length;
  }
  if (received > told_bytes_) credit_due_ns_ = EventLoop::kNever;  // progress: settle() starts the wait anew
  out.header.received = told_bytes_ = received;
  if (out.header.type == FrameType::result) {
    record({.stage = Stage::answered,
            .peer = rank_,
            .round = out.header.round,
            .key = out.header.key,
            .at_ns = shard_.now_ns(),
            .bytes = out.header.length});
  }
  shard_.trace_frame(">", rank_, out.header);
  return true;
}

uint64_t ChildLink::credit() const {
  const uint64_t bytes = on_arrival_ ? arrived_bytes_ : std::min(answered_bytes_, arrived_bytes_);
  return std::max(bytes, told_bytes_);
}

void ChildLink::settle() {
  if (!std::exchange(touched_, false)) return;
  if (on_arrival_ && answered_bytes_ >= arrived_bytes_) on_arrival_ = false;
  if (!link_->alive()) return;
  link_->flush();
  if (told_bytes_ >= wanted_bytes_) {
    credit_due_ns_ = EventLoop::kNever;
  } else if (!on_arrival_ && credit_due_ns_ == EventLoop::kNever) {
    credit_due_ns_ = shard_.now_ns() + patience_ns_;
  }
}

void ChildLink::on_deadline(int64_t now) {
  if (now < credit_due_ns_) return;
  credit_due_ns_ = EventLoop::kNever;  // over, also if the wire takes nothing now: then it goes when it does
  on_arrival_ = true;
  touched_ = true;
}

std::byte* ChildLink::begin(const Header& header) {
  shard_.trace_frame("<", rank_, header);
  if (header.sender != rank_) {
    throw WireError("sender is " + std::to_string(header.sender) + " on the connection of " +
                    shard_.epoch().ranks[rank_]);
  }
  switch (header.type) {
    case FrameType::refuse:
      small_.resize(header.length);
      return small_.data();
    case FrameType::push: {
      const auto [bytes, wanted] = shard_.expect_contribution(rank_, header);
      coming_bytes_ = bytes;
      wanted_ = wanted;
      if (header.flags & kFlagByAddress) {
        if (!peer_) throw WireError("PUSH: by address on a connection where that was not agreed");
        return reinterpret_cast<std::byte*>(&offer_);
      }
      if (!wanted || bytes == 0) return nullptr;
      try {
        incoming_ = shard_.pool().take(bytes);
      } catch (const std::bad_alloc& lack) {
        shard_.no_memory(rank_, header, lack.what());
        return nullptr;
      }
      return incoming_.data();
    }
    default:
      throw WireError(std::string(name_of(header.type)) + ": not a frame that a worker sends");
  }
}

void ChildLink::end(const Header& header, bool landed) {
  if (header.type == FrameType::refuse) {
    shard_.refuse(rank_, header, {reinterpret_cast<const char*>(small_.data()), small_.size()});
    return;
  }
  arrived_bytes_ += coming_bytes_;
  answered_bytes_ += open_.open(header.priority, coming_bytes_);
  if (header.flags & kFlagWantCredit) {
    wanted_bytes_ = arrived_bytes_;
    touched_ = true;
  }
  BufferRef payload = std::move(incoming_);
  incoming_.reset();
  if (header.flags & kFlagByAddress) {
    landed = wanted_ && coming_bytes_ > 0;
    try {
      if (landed) payload = fetch(header);
    } catch (const std::bad_alloc& lack) {
      shard_.no_memory(rank_, header, lack.what());
      landed = false;
    }
    if (landed && !payload) {
      answered(coming_bytes_, header.priority);
      shard_.ask_again(rank_, header);
      return;
    }
  }
  if (!shard_.contribute(rank_, header, coming_bytes_, landed || coming_bytes_ == 0, std::move(payload))) {
    answered(coming_bytes_, header.priority);
  }
}

// The contribution itself, out of the worker's memory; nothing if the worker has given that memory up.
BufferRef ChildLink::fetch(const Header& header) {
  BufferRef buffer = shard_.pool().take(coming_bytes_);
  const auto copied = peer_->copy(buffer.data(), offer_, coming_bytes_);
  if (copied == PeerMemory::Copied::withdrawn) return {};
  if (copied == PeerMemory::Copied::yes) {
    shard_.count_read(coming_bytes_);
    return buffer;
  }
  const std::string text = "PUSH: cannot read " + std::to_string(coming_bytes_) + " bytes of " +
                           shard_.key_text(header) + " at " + std::to_string(offer_.address) + " from " +
                           shard_.epoch().ranks[rank_] + ", " + peer_->error_text();
  if (copied == PeerMemory::Copied::gone) throw PeerGone(text);
  throw WireError(text + "; BYTEPS_ENABLE_IPC=0 sends payloads over sockets only");
}

void ChildLink::on_end(Link&, Link::End end, const std::string& reason) {
  out_.clear();
  incoming_.reset();
  shard_.child_ended(*this, end, reason);
}

}  // namespace byteps
