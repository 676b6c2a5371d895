// What the children have declared to one shard: its tensors, and the state of each of their keys.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "aggregator/counters.h"
#include "aggregator/key_state.h"
#include "aggregator/settings.h"
#include "wire/header.h"

namespace byteps {

class KeyTable {
 public:
  KeyTable(const AggregatorSettings& settings, ShardCounters& counters)
      : settings_(settings), counters_(counters) {}

  // Throws WireError if it is not what other children have declared.
  void declare(const Header& header, const std::vector<std::byte>& payload);
  // The key of a contribution, made at the first one; throws WireError if its tensor is not declared.
  KeyState& key_of(uint16_t rank, const Header& header);
  const KeyState* find(uint64_t key) const;
  // `before` is called with each key of these tensors before it goes.
  void forget(const std::vector<uint32_t>& tensors, const std::function<void(KeyState&)>& before);

  size_t bytes() const { return bytes_; }  // of all keys
  auto begin() { return keys_.begin(); }
  auto end() { return keys_.end(); }

 private:
  KeyState& make(uint64_t key, const std::shared_ptr<const TensorInfo>& tensor);

  const AggregatorSettings& settings_;
  ShardCounters& counters_;
  std::unordered_map<uint32_t, std::shared_ptr<const TensorInfo>> tensors_;
  std::unordered_map<uint64_t, KeyState> keys_;
  size_t bytes_ = 0;
};

}  // namespace byteps
