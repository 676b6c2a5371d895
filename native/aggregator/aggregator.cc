#include "aggregator/aggregator.h"

#include <stdexcept>

#include "base/memory.h"
#include "observe/sample.h"
#include "wire/limits.h"

namespace byteps {

namespace {

std::shared_ptr<const Epoch> checked(Epoch epoch) {
  if (const char* reason = invalid(epoch)) throw std::invalid_argument(reason);
  return std::make_shared<const Epoch>(std::move(epoch));
}

}  // namespace

Aggregator::Aggregator(AggregatorSettings settings)
    : settings_(std::move(settings)), epoch_(checked(settings_.epoch)) {
  if (settings_.shards == 0) throw std::invalid_argument("an aggregator needs at least one shard");
  for (unsigned i = 0; i < settings_.shards; ++i) {
    shards_.push_back(std::make_unique<Shard>(settings_, epoch_, tensors_, i, events_));
  }
  for (auto& shard : shards_) shard->start();
}

void Aggregator::enter(Epoch epoch) {
  epoch_ = checked(std::move(epoch));
  for (auto& shard : shards_) shard->enter(epoch_);
}

void Aggregator::clear() {
  tensors_.clear();
  for (auto& shard : shards_) shard->clear();
}

void Aggregator::check_rank(uint16_t rank) const {
  if (rank >= epoch_->ranks.size()) throw std::out_of_range("no such rank");
}

void Aggregator::attach(unsigned shard, uint16_t rank, std::unique_ptr<Endpoint> endpoint, bool checksum,
                        pid_t peer_pid, uint32_t tag) {
  check_rank(rank);
  shards_.at(shard)->attach(epoch_->number, rank, std::move(endpoint), checksum, peer_pid, tag);
}

void Aggregator::depart(uint16_t rank) {
  check_rank(rank);
  for (auto& shard : shards_) shard->depart(rank);
}

void Aggregator::declare(TensorInfo tensor) {
  if (const char* reason = invalid(tensor, settings_.shards))
    throw std::invalid_argument(tensor.name + ": " + reason);
  const auto wanted = [&](const std::string& which) {
    return !which.empty() && sample_matches(which, tensor.name, tensor.id);
  };
  tensor.traced = wanted(settings_.sample) ||
                  (settings_.debug && (settings_.debug_key.empty() || wanted(settings_.debug_key)));
  // What was declared before is taken when it is pushed: what of it is still to come must find room, too.
  MemoryGate::shared().expect(tensors_.coming_bytes() + tensor.lasting_bytes(tensor.own_bytes()));
  tensors_.declare(std::move(tensor));
}

void Aggregator::retire(const std::vector<uint32_t>& tensors) {
  tensors_.forget(tensors);
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
