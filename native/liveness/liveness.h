// Heartbeats: one native thread tells every peer "I am alive", and notices who is silent or gone.
//
// It is native so that it does not depend on the interpreter: a rank whose Python holds the GIL for a minute
// still beats. Python decides what a silence means; here it is only noticed.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/event_queue.h"
#include "base/runtime.h"
#include "liveness/beat_lines.h"
#include "transport/endpoint.h"

namespace byteps {

class Liveness final : public EventLoop::Owner {
 public:
  Liveness(uint64_t job, double interval_s, double timeout_s, Runtime& runtime = Runtime::machine());
  ~Liveness() override;

  // Takes an authenticated connection, one of the lines to a peer. `peer` is the caller's number for it, and
  // is in its event. The peer is gone when one of its lines ends.
  void add(std::unique_ptr<Endpoint> endpoint, int peer);
  // A polite end: the connections are closed without an event.
  void remove(int peer);
  // The next beat of this peer is told as an event: heard.
  void listen_for(int peer);
  // At most one failure per peer: lost (its connection closed), silent or protocol, number the peer. The text
  // of silent is for how many seconds.
  EventQueue& events() { return events_; }
  void close();

 private:
  struct Line;
  struct Peer;

  void on_batch_end() override;
  int64_t next_deadline_ns() const override { return peers_.empty() ? EventLoop::kNever : next_look_ns_; }
  void on_deadline(int64_t now) override;
  // A connection that cannot be watched has ended by then.
  void on_exception(const char*) noexcept override {}
  void add_line(int number, Endpoint& endpoint);
  void beat(Peer& peer, int64_t now);
  bool is_silent(const Peer& peer, int64_t now) const;
  // kind none: it has been told already.
  void gone(int peer, FailureKind kind, const std::string& reason);

  const uint64_t job_;
  const BeatTimes times_;
  EventQueue events_;
  const Clock clock_;
  const std::unique_ptr<EventLoop> loop_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Peer>> ended_;  // kept until the batch is over
  int64_t next_round_ns_ = 0;                 // of beats to all peers
  int64_t next_look_ns_ = 0;                  // at peers that cannot wait for it
};

}  // namespace byteps
