// A shard's end of the connection to one rank: reads its child's contributions, sends it results.
#pragma once

#include <optional>
#include <vector>

#include "aggregator/key_state.h"
#include "aggregator/open_bytes.h"
#include "base/ready_queue.h"
#include "transport/endpoint.h"
#include "transport/shm/peer_memory.h"

namespace byteps {

class Shard;

class ChildLink final : public FrameSource, public FrameSink, public Link::Watcher {
 public:
  struct Names {
    uint16_t rank;
    uint32_t number;  // of all connections of the shard
    uint32_t tag;     // what its owner calls it, and hears in the event of its end
  };
  ChildLink(Shard& shard, EventLoop& loop, const Names& names, Endpoint& endpoint, const LinkOptions& options,
            pid_t peer_pid);

  uint16_t rank() const { return rank_; }
  uint32_t number() const { return number_; }
  uint32_t tag() const { return tag_; }
  const std::shared_ptr<Link>& link() const { return link_; }
  bool same_machine() const { return same_machine_; }

  void send(Header header, const std::byte* payload, BufferRef keep) noexcept;
  void send_copy(Header header, const void* data, size_t bytes) noexcept;
  void send_text(Header header, std::string_view text) noexcept;
  // The round of a contribution of this many bytes is over; it was pushed with this priority.
  void answered(uint64_t bytes, int32_t priority) { answered_bytes_ += open_.close(priority, bytes); }
  // End of a batch: flushes, and says what has been consumed if no result has said it.
  void settle();
  // When to give credit without an answer; see credit() below.
  int64_t credit_due_ns() const { return credit_due_ns_; }
  void on_deadline(int64_t now);

 private:
  bool next(OutFrame& out) override;
  std::byte* begin(const Header& header) override;
  void end(const Header& header, bool landed) override;
  void on_end(Link& link, Link::End end, const std::string& reason) override;
  BufferRef fetch(const Header& header);

  Shard& shard_;
  const uint16_t rank_;
  const uint32_t number_, tag_;
  std::shared_ptr<Link> link_;
  std::optional<PeerMemory> peer_;  // if the worker may push by address
  ReadyQueue<OutFrame> out_;
  uint64_t waiting_bytes_ = 0;  // in it
  // Of the PUSH being read: how long the contribution is and whether it is wanted, where its payload lands,
  // or where it lies in the worker's memory.
  uint32_t coming_bytes_ = 0;
  bool wanted_ = false;
  BufferRef incoming_;
  Offer offer_;
  std::vector<std::byte> small_;  // where the payload of a REFUSE lands
  // Credit comes back when a contribution's round is over, so that ranks that push the same tensors stay
  // close together and their pieces meet in the cache. When that takes too long, because the others are late
  // or push something else first, credit comes back on arrival until they have caught up: waiting longer
  // could block ranks that wait for each other in a circle. The credit of what was overtaken by a more urgent
  // push comes back at once: else it would hold back what is urgent until all of that is through.
  uint64_t credit() const;
  uint64_t arrived_bytes_ = 0;   // contributions consumed
  uint64_t answered_bytes_ = 0;  // of that, in rounds that are over, or overtaken
  uint64_t told_bytes_ = 0;      // the last `received` sent
  OpenBytes open_;               // contributions in rounds that are not over
  uint64_t wanted_bytes_ = 0;    // arrived_bytes_ when credit was last asked for
  bool same_machine_ = false;
  int64_t patience_ns_ = 0;
  int64_t credit_due_ns_ = EventLoop::kNever;
  bool on_arrival_ = false;
  bool touched_ = false;  // has something to send at the end of this batch
};

}  // namespace byteps
