// Heartbeats: one native thread tells every peer "I am alive", and notices who is silent or gone.
//
// It is native so that it does not depend on the interpreter: a rank whose Python holds the GIL for a minute
// still beats. Python decides what a silence means; here it is only noticed.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/event_queue.h"
#include "transport/tcp/tcp_link.h"

namespace byteps {

class Liveness final : public EventLoop::Owner {
 public:
  Liveness(uint64_t job, double interval_s, double timeout_s);
  ~Liveness() override;

  // Takes an authenticated connection. `peer` is the caller's number for it, and is in its event.
  void add(Fd fd, int peer);
  // A polite end: the connection is closed without an event.
  void remove(int peer);
  // At most one event per peer: kind "closed", "silent" or "protocol", number the peer.
  EventQueue& events() { return events_; }
  void close();

 private:
  struct Peer;

  void on_batch_end() override;
  int64_t next_deadline_ns() const override { return peers_.empty() ? EventLoop::kNever : next_beat_ns_; }
  void on_deadline(int64_t now) override;
  void gone(int peer, const char* kind, const std::string& reason);

  const uint64_t job_;
  const int64_t interval_ns_, timeout_ns_;
  EventQueue events_;
  EventLoop loop_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Peer>> ended_;  // kept until the batch is over
  int64_t next_beat_ns_ = 0;
  int64_t last_beat_ns_ = 0;
};

}  // namespace byteps
