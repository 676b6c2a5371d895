#include "liveness/liveness.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace byteps {

// One of the connections to a peer.
struct Liveness::Line final : FrameSource, FrameSink, Link::Watcher {
  Line(Peer& peer, EventLoop& loop, Endpoint& endpoint, uint64_t job) : peer(peer) {
    // Beats belong to the job, not to an epoch: a connection outlives a change of members.
    link = endpoint.open(loop, {job, 0, false}, *this, *this, *this);
  }

  bool next(OutFrame& out) override {
    if (!std::exchange(beat_due, false)) return false;
    out = {};
    out.header.type = FrameType::beat;
    return true;
  }
  std::byte* begin(const Header& header) override {
    if (header.type != FrameType::beat) {
      throw WireError(std::string(name_of(header.type)) + ": not a frame for a heartbeat connection");
    }
    return nullptr;
  }
  void end(const Header&, bool) override;
  void on_end(Link&, Link::End end, const std::string& reason) override;

  Peer& peer;
  bool beat_due = false;
  std::shared_ptr<Link> link;
};

struct Liveness::Peer {
  Peer(Liveness& owner, int number, int64_t now)
      : owner(owner), number(number), heard_ns(now), beats(owner.times_, now) {}

  void close() {
    for (auto& line : lines) line->link->close();
  }

  Liveness& owner;
  const int number;
  int64_t heard_ns;
  bool listened_for = false;
  BeatLines beats;
  std::vector<std::unique_ptr<Line>> lines;
};

void Liveness::Line::end(const Header&, bool) {
  peer.heard_ns = peer.owner.clock_.now_ns();
  if (std::exchange(peer.listened_for, false)) peer.owner.events_.heard(peer.number);
}

void Liveness::Line::on_end(Link&, Link::End end, const std::string& reason) {
  const bool broken = end == Link::End::violation;
  peer.owner.gone(peer.number, broken ? FailureKind::protocol : FailureKind::lost, reason);
}

Liveness::Liveness(uint64_t job, double interval_s, double timeout_s, Runtime& runtime)
    : job_(job),
      times_{seconds_to_ns(interval_s), seconds_to_ns(timeout_s)},
      clock_(runtime.clock()),
      loop_(runtime.make_loop(*this, "bps-liveness")) {
  loop_->start();
}

Liveness::~Liveness() { close(); }

void Liveness::close() {
  loop_->stop();
  peers_.clear();
  ended_.clear();
}

void Liveness::add(std::unique_ptr<Endpoint> endpoint, int number) {
  std::shared_ptr<Endpoint> shared = std::move(endpoint);
  loop_->post([this, shared, number] {
    try {
      ended_.reserve(ended_.size() + peers_.size() + 1);  // so that gone() needs no memory
      add_line(number, *shared);
    } catch (const std::exception& error) {  // no memory, or no room in the epoll: nobody would watch it
      events_.failed(FailureKind::lost, Role::nobody, number, error.what());
      gone(number, FailureKind::none, {});
    }
  });
}

void Liveness::add_line(int number, Endpoint& endpoint) {
  const int64_t now = clock_.now_ns();
  auto& peer = peers_[number];
  if (!peer) peer = std::make_unique<Peer>(*this, number, now);
  peer->lines.push_back(std::make_unique<Line>(*peer, *loop_, endpoint, job_));
  peer->beats.add_line();
  beat(*peer, now);
}

void Liveness::remove(int number) {
  loop_->post([this, number] {
    const auto it = peers_.find(number);
    if (it == peers_.end()) return;
    it->second->close();
    ended_.push_back(std::move(it->second));
    peers_.erase(it);
  });
}

void Liveness::listen_for(int number) {
  loop_->post([this, number] {
    if (const auto it = peers_.find(number); it != peers_.end()) it->second->listened_for = true;
  });
}

void Liveness::gone(int number, FailureKind kind, const std::string& reason) {
  const auto it = peers_.find(number);
  if (it == peers_.end()) return;
  it->second->close();
  if (kind != FailureKind::none) events_.failed(kind, Role::nobody, number, reason);
  ended_.push_back(std::move(it->second));
  peers_.erase(it);
}

void Liveness::on_batch_end() {
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *(it++)->second;  // flush may end the link, and erase the peer
    for (size_t i = 0; i < peer.lines.size(); ++i) {
      if (peer.lines[i]->beat_due) peer.lines[i]->link->flush();
    }
  }
  ended_.clear();
}

void Liveness::beat(Peer& peer, int64_t now) {
  for (size_t i = 0; i < peer.lines.size(); ++i) {
    const Line& line = *peer.lines[i];
    if (peer.beats.outstanding(i) && !line.beat_due && line.link->delivered()) peer.beats.acknowledged(i);
  }
  if (const auto line = peer.beats.next(now)) peer.lines[*line]->beat_due = true;
}

// What lies unread in a socket has been said: perhaps this process was stopped, or many speak at once.
bool Liveness::is_silent(const Peer& peer, int64_t now) const {
  if (now - peer.heard_ns < times_.limit_ns()) return false;
  return std::none_of(peer.lines.begin(), peer.lines.end(),
                      [](const auto& line) { return line->link->has_unread(); });
}

void Liveness::on_deadline(int64_t now) {
  const bool round = now >= next_round_ns_;
  if (round) next_round_ns_ = now + times_.interval_ns;
  next_look_ns_ = next_round_ns_;
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *(it++)->second;
    if (is_silent(peer, now)) {
      gone(peer.number, FailureKind::silent, seconds_text(now - peer.heard_ns));
      continue;
    }
    if (round || now >= peer.beats.last_moment_ns()) beat(peer, now);
    next_look_ns_ = std::min({next_look_ns_, peer.beats.last_moment_ns(), peer.heard_ns + times_.limit_ns()});
  }
}

}  // namespace byteps
