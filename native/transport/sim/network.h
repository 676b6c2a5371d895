// A network inside one process and one thread, in a time that somebody else makes: the same seed and the same
// calls give the same events in the same order.
//
// Nothing happens by itself. advance(to) says how late it is, and everything that is due happens, ordered by
// (time, sequence). What happens at one end of a connection (bytes have come, there is room, it is lost) is
// posted to the loop in which that end was opened, and so is handled there, in its thread, by its next turn:
// a driver turns its loops until none has anything to do, then advances to next_event_ns().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/event_loop.h"
#include "transport/endpoint.h"

namespace byteps::sim {

class Wire;

// Both directions alike.
struct WireOptions {
  int64_t delay_ns = 50'000;          // from end to end, one way
  int64_t jitter_ns = 0;              // up to this much more; what was sent first still arrives first
  double bytes_per_s = 0;             // 0: as fast as it is written
  size_t segment_bytes = 64 * 1024;   // most that travels together
  bool ragged = false;                // lengths of segments, reads and writes are drawn
  size_t send_bytes = 256 * 1024;     // written and not yet known to have arrived
  size_t receive_bytes = 256 * 1024;  // in flight or arrived, and not yet known to have been read
  bool same_machine = false;          // what both ends say of where they are
};

// Two ends and the wire between them, for whoever wants to cut it. Each end may become a link of any loop.
struct Connection {
  std::unique_ptr<Endpoint> first, second;
  std::shared_ptr<Wire> wire;
};

// Outlives its connections.
class Network {
 public:
  explicit Network(uint64_t seed) : random_(seed) {}
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Connection connect(const WireOptions& options);

  int64_t now_ns() const { return now_ns_; }
  Clock clock() const { return Clock(now_ns_); }
  // EventLoop::kNever: nothing will happen.
  int64_t next_event_ns() const { return events_.empty() ? EventLoop::kNever : events_.begin()->first.first; }
  // It is this late: what is due happens, each at its own time. Time never goes back.
  void advance(int64_t to_ns);
  // At this time, or at once if it is over; after what was planned for the same time before.
  void at(int64_t when_ns, std::function<void()> happens);
  // 0 to below - 1, drawn from the seed: when a connection is lost, for example.
  uint64_t random(uint64_t below) { return random_() % below; }

 private:
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;  // by (time, sequence)
  uint64_t sequence_ = 0;
  int64_t now_ns_ = 0;
  std::mt19937_64 random_;
};

}  // namespace byteps::sim
