// One thread of an aggregator: its own keys, its own connections, no locks.
//
// All contributions to a key, from all children, come to the same shard (shard_contributions.cc); rounds open
// and end (shard_rounds.cc), or cannot (shard_failures.cc); where children do not wait for each other, each
// is answered at once (shard_at_once.cc). What contributions become is the business of the key's update rule
// (update/rule.h). Other threads only put work into its inbox (a new connection, a departed rank, retired
// tensors) and wake it.
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "aggregator/child_link.h"
#include "aggregator/counters.h"
#include "aggregator/key_table.h"
#include "aggregator/settings.h"
#include "base/event_queue.h"
#include "transport/shm/lease.h"
#include "wire/limits.h"

namespace byteps {

class Shard final : public EventLoop::Owner {
 public:
  Shard(const AggregatorSettings& settings, std::shared_ptr<const Epoch> epoch, TensorTable& tensors,
        unsigned index, EventQueue& events);
  ~Shard() override;

  // Any thread.
  void start() { loop_->start(); }
  void stop();
  // A connection of another epoch than the present one is closed.
  void attach(uint32_t epoch, uint16_t rank, std::unique_ptr<Endpoint> endpoint, bool checksum,
              pid_t peer_pid, uint32_t tag);
  void depart(uint16_t rank);
  void retire(std::vector<uint32_t> tensors);
  // See Aggregator.
  void enter(std::shared_ptr<const Epoch> epoch);
  void clear();
  const ShardCounters& counters() const { return counters_; }

  // Shard thread, for ChildLink.
  int64_t now_ns() const { return clock_.now_ns(); }
  const AggregatorSettings& settings() const { return settings_; }
  const Epoch& epoch() const { return *epoch_; }
  BufferPool& pool() { return pool_; }
  // A worker that reads has at most one answer of each key on its way, and a few words besides.
  uint64_t most_waiting_bytes() const { return 2 * keys_.bytes() + limits::kAnswerBytes; }
  // How many bytes a PUSH brings, over the socket or by address, and whether they are worth taking. Not if
  // there is no memory for what is needed to add them.
  struct Expected {
    uint32_t bytes;
    bool wanted;
  };
  Expected expect_contribution(uint16_t rank, const Header& header);
  // `bytes` is what was expected, `landed`: they are all in `payload`. False: dealt with at once. True: its
  // round is open, and ChildLink::answered() follows when it is over.
  bool contribute(uint16_t rank, const Header& header, uint32_t bytes, bool landed, BufferRef payload);
  // The child has nothing to contribute to this round, and says why: nobody gets a result.
  void refuse(uint16_t rank, const Header& header, std::string_view why);
  // There is no memory for a contribution that was wanted: its round fails, or the operation of its sender.
  void no_memory(uint16_t rank, const Header& header, const char* why);
  // What was offered is void: as if it had never come. If its operation still goes on, the worker pushes
  // again.
  void ask_again(uint16_t rank, const Header& header);
  void count_read(uint64_t bytes) { ShardCounters::bump(counters_.read_bytes, bytes); }
  std::string key_text(const Header& header) const;
  void child_ended(ChildLink& link, Link::End end, const std::string& reason);
  void trace_frame(const char* direction, uint16_t rank, const Header& header);

 private:
  void on_batch_end() override;
  int64_t next_deadline_ns() const override;
  void on_deadline(int64_t now) override;
  void on_exception(const char* what) noexcept override {
    events_.failed(FailureKind::memory, Role::nobody, -1, what);
  }
  void begin_epoch(std::shared_ptr<const Epoch> epoch);
  void end_connection(uint16_t rank);
  void put_away(ChildLink& link);
  void forget_all();
  void take_connection(uint16_t rank, Endpoint& endpoint, const LinkOptions& options, pid_t peer_pid,
                       uint32_t tag);
  void tell_stalls(int64_t now);

  Shape shape_of(const Header& header, const KeyState& key, uint16_t rank) const;
  bool is_wanted(const KeyState& key, uint16_t child, const Header& header, size_t bytes) const;
  void count_contribution(const KeyState& key, uint16_t rank, const Header& header, const Shape& shape,
                          bool landed, const BufferRef& payload);
  std::string lack_text(const KeyState& key, const char* why) const;
  void add_turn(KeyState& key, uint16_t child);
  bool contribute_to_round(KeyState& key, const ReplyRoute& route, const Header& header, bool landed,
                           Contribution contribution);
  enum class Standing {
    first,       // of its child to the open round
    open,        // has come before, over another connection, and its round is open
    dealt_with,  // nothing is to be done about it any more
  };
  Standing standing_of(KeyState& key, const ReplyRoute& route, const Header& header);
  void answer_again(KeyState& key, const ReplyRoute& route, const Header& header);
  void contribute_at_once(KeyState& key, uint16_t rank, const Header& header, Contribution contribution);
  void update_at_once(KeyState& key, uint16_t rank, const Header& header, Contribution contribution);
  void add_at_once(KeyState& key, uint16_t rank, const Header& header, Contribution contribution);
  void open_round(KeyState& key, const Terms& terms);
  void keep(KeyState& key, size_t bytes);  // so much is kept for its open round now
  void advance(KeyState& key, const Header& header);
  bool may_hold(const KeyState& key, uint16_t child, size_t bytes) const;
  void drop_contributions(KeyState& key);
  void publish(KeyState& key, const Header& header);
  void tell_answered(const KeyState& key);
  void send_result(KeyState& key, ReplyRoute route, const Header& to);
  void send_resend(const KeyState& key, uint16_t rank, uint32_t round);
  void ask_for_missing(int64_t now);
  void send_error(const KeyState& key, uint16_t rank, uint32_t round, FailureKind kind,
                  const std::string& text);
  void fail_round(KeyState& key, FailureKind kind, std::string text);
  void tell_failure(KeyState& key);
  void close_round(KeyState& key);
  void abandon_round(KeyState& key);
  void rank_departed(uint16_t rank);
  void forget(const std::vector<uint32_t>& tensors);
  std::string missing_text(const KeyState& key) const;
  void sample(const KeyState& key, const char* stage, uint32_t round, const std::byte* data, DType dtype);
  void sample_result(const KeyState& key, const char* stage, uint32_t round);
  uint16_t children() const { return epoch_->child_count(); }
  Counts counts() const { return {children(), epoch_->rank_count()}; }
  uint16_t child_of(uint16_t rank) const { return epoch_->child_of[rank]; }
  // The connection to which the answer to a child's contribution goes, or null if that has ended.
  ChildLink* link_of(const KeyState& key, uint16_t child) {
    return links_[key.reply_routes[child].rank].get();
  }

  const AggregatorSettings& settings_;
  std::shared_ptr<const Epoch> epoch_;
  EventQueue& events_;
  ShardCounters counters_;
  BufferPool pool_;  // outlives everything below that holds buffers
  Lease lease_;      // of results sent by address
  const Clock clock_;
  const std::unique_ptr<EventLoop> loop_;
  KeyTable keys_;
  std::vector<std::unique_ptr<ChildLink>> links_;  // by rank, null while not connected
  std::vector<std::unique_ptr<ChildLink>> ended_;  // kept until the batch is over; room is reserved
  uint32_t last_connection_ = 0;
  Link::Traffic past_traffic_;  // of connections that have ended
  // Rounds that a child on another machine has contributed to, and when to ask the others for theirs.
  struct ToAsk {
    int64_t ask_ns;
    uint64_t key;
    uint32_t round;
  };
  std::deque<ToAsk> to_ask_;
  int first_departed_ = -1;
  size_t open_rounds_ = 0;
  int64_t next_look_ns_ = 0;  // for rounds that wait too long
  size_t extra_bytes_ = 0;    // that open rounds keep, beyond a contribution each
};

}  // namespace byteps
