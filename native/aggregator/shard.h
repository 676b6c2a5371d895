// One thread of an aggregator: its own keys, its own connections, no locks.
//
// All contributions to a key, from all children, come to the same shard. Other threads only put work into its
// inbox (a new connection, a departed child, retired tensors) and wake it.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "aggregator/child_link.h"
#include "aggregator/counters.h"
#include "aggregator/key_state.h"
#include "aggregator/settings.h"
#include "base/event_queue.h"

namespace byteps {

class Shard final : public EventLoop::Owner {
 public:
  Shard(const AggregatorSettings& settings, unsigned index, EventQueue& events);
  ~Shard() override;

  // Any thread.
  void start() { loop_.start(); }
  void stop();
  void attach(uint16_t child, Fd fd, bool checksum);
  void depart(uint16_t child);
  void retire(std::vector<uint32_t> tensors);
  const ShardCounters& counters() const { return counters_; }

  // Shard thread, for ChildLink.
  const AggregatorSettings& settings() const { return settings_; }
  BufferPool& pool() { return pool_; }
  void declare(const Header& header, const std::vector<std::byte>& payload);
  bool wants_contribution(uint16_t child, const Header& header);
  // False: dealt with at once. True: its round is open, and ChildLink::answered() follows when it is over.
  bool contribute(uint16_t child, const Header& header, bool landed, BufferRef payload);
  void child_ended(ChildLink& link, Link::End end, const std::string& reason);
  void trace_frame(const char* direction, uint16_t child, const Header& header);

 private:
  void on_batch_end() override;
  int64_t next_deadline_ns() const override;
  void on_deadline(int64_t now) override;
  void tell_stalls(int64_t now);

  KeyState& key_of(uint16_t child, const Header& header);
  void contribute_async(KeyState& key, uint16_t child, const Header& header, BufferRef payload);
  void advance(KeyState& key, const Header& header);
  bool may_hold(const KeyState& key, uint16_t child) const;
  void publish(KeyState& key, const Header& header);
  void tell_answered(const KeyState& key);
  void send_result(KeyState& key, uint16_t child, const Header& to);
  void send_error(const KeyState& key, uint16_t child, uint32_t round, ErrorKind kind,
                  const std::string& text);
  void fail_round(KeyState& key, ErrorKind kind, std::string text);
  void close_round(KeyState& key);
  void child_departed(uint16_t child);
  void forget(const std::vector<uint32_t>& tensors);
  std::string missing_text(const KeyState& key) const;
  std::string describe(const KeyState& key, uint32_t round) const;
  void sample(const KeyState& key, const char* stage, uint32_t round, const std::byte* data, size_t bytes);
  uint16_t children() const { return static_cast<uint16_t>(settings_.children.size()); }

  const AggregatorSettings& settings_;
  EventQueue& events_;
  ShardCounters counters_;
  BufferPool pool_;  // outlives everything below that holds buffers
  EventLoop loop_;
  std::unordered_map<uint32_t, std::shared_ptr<const TensorInfo>> tensors_;
  std::unordered_map<uint64_t, KeyState> keys_;
  std::vector<std::unique_ptr<ChildLink>> links_;  // by child, null while not connected
  std::vector<std::unique_ptr<ChildLink>> ended_;  // kept until the batch is over
  int first_departed_ = -1;
  size_t open_rounds_ = 0;
  int64_t next_look_ns_ = 0;  // for rounds that wait too long
  size_t key_bytes_ = 0;      // of all keys
  size_t open_bytes_ = 0;     // of the keys whose round is open
  size_t live_bytes_ = 0;     // of the contributions held and the sums of open rounds
};

}  // namespace byteps
