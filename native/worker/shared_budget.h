// What the order of one link (send_order.h) asks of the budget that all links of a worker share (budget.h).
//
// Thread-safe: links live in several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>

namespace byteps {

class SharedBudget {
 public:
  // The place of a piece in the order over all links.
  struct Place {
    int32_t priority = 0;
    int64_t submitted_ns = 0;
    uint64_t progress = 0;  // what part of the tensor's pieces on this link went before it, of 2^32
    uint32_t piece = 0;
    bool before(const Place& other) const {
      return std::tuple(-int64_t{priority}, submitted_ns, progress, piece) <
             std::tuple(-int64_t{other.priority}, other.submitted_ns, other.progress, other.piece);
    }
  };
  // A link that was refused is told to ask again when it is its turn.
  class Sender {
   public:
    virtual void nudge() = 0;  // any thread

   protected:
    ~Sender() = default;
  };
  // Asked for only when a sample of the network's speed is due: it costs a system call.
  using RoundTrip = std::function<int64_t()>;

  // May this piece go now? If not, the link waits for its turn.
  virtual bool admit(Sender& sender, const Place& place, uint64_t bytes, int64_t now_ns) = 0;
  // This piece goes now, whether there is room or not.
  virtual void pass(Sender& sender, uint64_t bytes, int64_t now_ns) = 0;
  // The link has nothing to send any more, or is held back by something else.
  virtual void withdraw(Sender& sender) = 0;
  // Servers are done with so many bytes more.
  virtual void received(uint64_t bytes, int64_t now_ns, const RoundTrip& round_trip_ns) = 0;
  // So many bytes that were in flight are void: the connection of their link is gone.
  virtual void lost(uint64_t bytes) = 0;
  // What a link that has sent so many bytes may have in flight.
  virtual uint64_t part(uint64_t link_sent_bytes, uint64_t piece_bytes) = 0;

 protected:
  ~SharedBudget() = default;
};

}  // namespace byteps
