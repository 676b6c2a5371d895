// The reducing component: children contribute, it sums, all children get the result. A server process is one.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "aggregator/shard.h"

namespace byteps {

class Aggregator {
 public:
  explicit Aggregator(AggregatorSettings settings);
  ~Aggregator() { close(); }

  // The next epoch begins: all connections end, and those of the new epoch may be attached. Where it has the
  // same children, open rounds and results stay: workers send again what they have no answer to. Otherwise
  // open rounds are dropped. Not while another thread calls.
  void enter(Epoch epoch);
  // Nobody needs what was declared until now: tensors, their results and the state of codecs go.
  void clear();
  // Takes a connection of the present epoch, whose peer has been authenticated. peer_pid: the worker's
  // process if it is on this machine and each can read the other's memory, else 0. tag: what the event of its
  // end calls it. A rank that has a connection already has broken with that one.
  void attach(unsigned shard, uint16_t rank, std::unique_ptr<Endpoint> endpoint, bool checksum,
              pid_t peer_pid = 0, uint32_t tag = 0);
  // The rank has said goodbye: what still needs it is answered with an error.
  void depart(uint16_t rank);
  // The scheduler has placed parts of this tensor here: from now on they may be pushed. Throws
  // std::invalid_argument if it cannot be, and OutOfMemory if this process has no room for it.
  void declare(TensorInfo tensor);
  void retire(const std::vector<uint32_t>& tensors);
  EventQueue& events() { return events_; }
  std::map<std::string, uint64_t> counters() const;
  // Ends all threads and connections. Idempotent.
  void close();

 private:
  void check_rank(uint16_t rank) const;
  const AggregatorSettings settings_;
  std::shared_ptr<const Epoch> epoch_;
  EventQueue events_;
  TensorTable tensors_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace byteps
