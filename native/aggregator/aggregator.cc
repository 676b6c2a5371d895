#include "aggregator/aggregator.h"

#include <stdexcept>

namespace byteps {

Aggregator::Aggregator(AggregatorSettings settings, unsigned shards) : settings_(std::move(settings)) {
  if (settings_.children.empty() || settings_.children.size() > limits::kMaxChildren) {
    throw std::invalid_argument("an aggregator needs 1 to 65535 children");
  }
  if (shards == 0) throw std::invalid_argument("an aggregator needs at least one shard");
  for (unsigned i = 0; i < shards; ++i) shards_.push_back(std::make_unique<Shard>(settings_, i, events_));
  for (auto& shard : shards_) shard->start();
}

void Aggregator::check_child(uint16_t child) const {
  if (child >= settings_.children.size()) throw std::out_of_range("no such child");
}

void Aggregator::attach(unsigned shard, uint16_t child, Fd fd, bool checksum) {
  check_child(child);
  shards_.at(shard)->attach(child, std::move(fd), checksum);
}

void Aggregator::depart(uint16_t child) {
  check_child(child);
  for (auto& shard : shards_) shard->depart(child);
}

void Aggregator::retire(const std::vector<uint32_t>& tensors) {
  for (auto& shard : shards_) shard->retire(tensors);
}

std::map<std::string, uint64_t> Aggregator::counters() const {
  std::map<std::string, uint64_t> totals;
  for (const auto& shard : shards_) shard->counters().add_to(totals);
  return totals;
}

void Aggregator::close() {
  for (auto& shard : shards_) shard->stop();
  shards_.clear();
}

}  // namespace byteps
