#include "liveness/liveness.h"

#include "base/clock.h"
#include "base/error.h"

namespace byteps {

struct Liveness::Peer final : FrameSource, FrameSink, Link::Watcher {
  Peer(Liveness& owner, int number, Fd fd) : owner(owner), number(number), heard_ns(now_ns()) {
    // Beats belong to the job, not to an epoch: a connection outlives a change of members.
    const TcpLink::Options options{owner.job_, 0, false};
    link = std::make_shared<TcpLink>(owner.loop_, std::move(fd), options, *this, *this, *this);
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
  void end(const Header&, bool) override { heard_ns = now_ns(); }
  void on_end(Link&, Link::End end, const std::string& reason) override {
    owner.gone(number, end == Link::End::violation ? "protocol" : "closed", reason);
  }

  Liveness& owner;
  const int number;
  int64_t heard_ns;
  bool beat_due = true;
  std::shared_ptr<TcpLink> link;
};

Liveness::Liveness(uint64_t job, double interval_s, double timeout_s)
    : job_(job),
      interval_ns_(seconds_to_ns(interval_s)),
      timeout_ns_(seconds_to_ns(timeout_s)),
      loop_(*this, "bps-liveness") {
  loop_.start();
}

Liveness::~Liveness() { close(); }

void Liveness::close() {
  loop_.stop();
  peers_.clear();
  ended_.clear();
}

void Liveness::add(Fd fd, int peer) {
  auto shared = std::make_shared<Fd>(std::move(fd));
  loop_.post([this, shared, peer] {
    auto& slot = peers_[peer] = std::make_unique<Peer>(*this, peer, std::move(*shared));
    slot->link->open();
  });
}

void Liveness::remove(int peer) {
  loop_.post([this, peer] {
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return;
    it->second->link->close();
    ended_.push_back(std::move(it->second));
    peers_.erase(it);
  });
}

void Liveness::gone(int peer, const char* kind, const std::string& reason) {
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return;
  events_.post({kind, peer, reason});
  ended_.push_back(std::move(it->second));
  peers_.erase(it);
}

void Liveness::on_batch_end() {
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *(it++)->second;  // flush may end the link and erase it
    if (peer.beat_due) peer.link->flush();
  }
  ended_.clear();
}

void Liveness::on_deadline(int64_t now) {
  // If this process itself was stopped for a while, the others' beats lie unread: start counting anew.
  const bool was_stopped = last_beat_ns_ > 0 && now - last_beat_ns_ > interval_ns_ + timeout_ns_ / 2;
  last_beat_ns_ = now;
  next_beat_ns_ = now + interval_ns_;
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *(it++)->second;
    peer.beat_due = true;
    if (was_stopped) peer.heard_ns = now;
    if (now - peer.heard_ns < timeout_ns_) continue;
    const auto silent_s = (now - peer.heard_ns) / kNanosecondsPerSecond;
    peer.link->close();
    gone(peer.number, "silent", "no heartbeat for " + std::to_string(silent_s) + " s");
  }
}

}  // namespace byteps
