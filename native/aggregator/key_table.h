// The state of each key of one shard: made at its first contribution, gone with its tensor.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "aggregator/counters.h"
#include "aggregator/key_state.h"
#include "aggregator/settings.h"
#include "aggregator/tensor/tensor_table.h"
#include "wire/header.h"

namespace byteps {

class KeyTable {
 public:
  KeyTable(const AggregatorSettings& settings, std::shared_ptr<const Epoch> epoch, TensorTable& tensors,
           unsigned shard, ShardCounters& counters)
      : settings_(settings),
        epoch_(std::move(epoch)),
        tensors_(tensors),
        shard_(shard),
        counters_(counters) {}

  void enter(std::shared_ptr<const Epoch> epoch) { epoch_ = std::move(epoch); }

  // The key of a contribution; throws WireError if the scheduler has placed nothing of the kind on this
  // shard.
  KeyState& key_of(uint16_t rank, const Header& header);
  const KeyState* find(uint64_t key) const;
  // `before` is called with each key of these tensors before it goes.
  void forget(const std::vector<uint32_t>& tensors, const std::function<void(KeyState&)>& before);

  void clear();

  size_t size() const { return keys_.size(); }
  size_t bytes() const { return bytes_; }  // of all keys
  auto begin() { return keys_.begin(); }
  auto end() { return keys_.end(); }

 private:
  const AggregatorSettings& settings_;
  std::shared_ptr<const Epoch> epoch_;
  TensorTable& tensors_;
  const unsigned shard_;
  ShardCounters& counters_;
  std::unordered_map<uint64_t, KeyState> keys_;
  std::unordered_map<uint32_t, std::vector<uint64_t>> of_tensor_;  // the keys that there are
  size_t bytes_ = 0;
};

}  // namespace byteps
