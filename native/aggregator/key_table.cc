#include "aggregator/key_table.h"

#include "aggregator/choose_rule.h"
#include "base/error.h"

namespace byteps {

KeyState& KeyTable::key_of(uint16_t rank, const Header& header) {
  if (auto it = keys_.find(header.key); it != keys_.end()) return it->second;
  const uint32_t id = tensor_of(header.key);
  const auto tensor = tensors_.find(id);
  if (!tensor) {
    throw WireError(std::string(name_of(header.type)) + ": tensor " + std::to_string(id) + " from " +
                    epoch_->ranks[rank] + ", which the scheduler has not placed on this server");
  }
  if (!tensor->is_on(piece_of(header.key), shard_, settings_.shards)) {
    throw WireError(std::string(name_of(header.type)) + ": piece " + std::to_string(piece_of(header.key)) +
                    " of " + tensor->name + " from " + epoch_->ranks[rank] +
                    ", which has its place elsewhere");
  }
  auto& keys = of_tensor_[id];
  keys.push_back(header.key);
  try {
    const auto children = epoch_->child_count();
    const KeyInfo info(header.key, tensor);
    KeyState& made =
        keys_.try_emplace(header.key, info, choose_rule(info, settings_), children, settings_.deterministic)
            .first->second;
    tensors_.begun(*tensor, made.length);
    bytes_ += made.length;
    ShardCounters::bump(counters_.declared_bytes, made.length);
    return made;
  } catch (...) {
    keys.pop_back();
    throw;
  }
}

const KeyState* KeyTable::find(uint64_t key) const {
  const auto it = keys_.find(key);
  return it == keys_.end() ? nullptr : &it->second;
}

void KeyTable::forget(const std::vector<uint32_t>& tensors, const std::function<void(KeyState&)>& before) {
  for (const uint32_t id : tensors) {
    const auto keys = of_tensor_.find(id);
    if (keys == of_tensor_.end()) continue;
    for (const uint64_t key : keys->second) {
      const auto it = keys_.find(key);
      before(it->second);
      bytes_ -= it->second.length;
      counters_.declared_bytes.fetch_sub(it->second.length, std::memory_order_relaxed);
      keys_.erase(it);
    }
    of_tensor_.erase(keys);
  }
}

void KeyTable::clear() {
  counters_.declared_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  keys_.clear();
  of_tensor_.clear();
  bytes_ = 0;
}

}  // namespace byteps
