// The reducing component: children contribute, it sums, all children get the result. A server process is one.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "aggregator/shard.h"

namespace byteps {

class Aggregator {
 public:
  Aggregator(AggregatorSettings settings, unsigned shards);
  ~Aggregator() { close(); }

  // Takes a connection whose peer has been authenticated.
  void attach(unsigned shard, uint16_t child, Fd fd, bool checksum);
  // The child has said goodbye: what still needs it is answered with an error.
  void depart(uint16_t child);
  void retire(const std::vector<uint32_t>& tensors);
  EventQueue& events() { return events_; }
  std::map<std::string, uint64_t> counters() const;
  // Ends all threads and connections. Idempotent.
  void close();

 private:
  void check_child(uint16_t child) const;
  const AggregatorSettings settings_;
  EventQueue events_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace byteps
