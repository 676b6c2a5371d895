#include "aggregator/key_table.h"

#include "base/error.h"
#include "observe/sample.h"
#include "wire/declaration.h"

namespace byteps {

void KeyTable::declare(const Header& header, const std::vector<std::byte>& payload) {
  const Declaration d = decode_declaration(payload);
  const uint32_t id = tensor_of(header.key);
  auto info = std::make_shared<TensorInfo>(TensorInfo{id, d.name, static_cast<DType>(header.dtype), d.cut});
  if (d.cut.tensor_bytes % size_of(info->dtype) != 0)
    throw WireError("DECLARE: not a whole number of elements");
  if (d.codec.kind != 0) {
    if (!is_float(info->dtype)) throw WireError("DECLARE: a codec for " + std::string(name_of(info->dtype)));
    info->codec = compress::from_fields(d.codec);
  }
  info->traced =
      sample_matches(settings_.sample, d.name, id) ||
      (settings_.debug && (settings_.debug_key.empty() || sample_matches(settings_.debug_key, d.name, id)));
  auto [it, is_new] = tensors_.try_emplace(id, info);
  const TensorInfo& known = *it->second;
  if (!is_new && known.codec != info->codec) {
    throw WireError("DECLARE: tensor " + std::to_string(id) + ", " + known.name +
                    ", is declared with another " +
                    "codec; set BYTEPS_MIN_COMPRESS_BYTES and BYTEPS_JOB_ID alike on all workers");
  }
  if (!is_new && (known.name != info->name || known.dtype != info->dtype || !(known.cut == info->cut))) {
    throw WireError("DECLARE: tensor " + std::to_string(id) + " is known as " + known.name + ", " +
                    std::to_string(known.cut.tensor_bytes) + " bytes of " + name_of(known.dtype) +
                    ", not as " + info->name + ", " + std::to_string(info->cut.tensor_bytes) + " bytes of " +
                    name_of(info->dtype));
  }
}

KeyState& KeyTable::make(uint64_t key, const std::shared_ptr<const TensorInfo>& tensor) {
  const auto children = static_cast<uint16_t>(settings_.children.size());
  try {
    KeyState& made = keys_.try_emplace(key, key, tensor, children, settings_.deterministic).first->second;
    bytes_ += made.length;
    ShardCounters::bump(counters_.declared_bytes, made.length);
    return made;
  } catch (const std::invalid_argument& error) {  // a codec that cannot be
    throw WireError("PUSH: " + tensor->name + ": " + error.what());
  }
}

KeyState& KeyTable::key_of(uint16_t rank, const Header& header) {
  if (auto it = keys_.find(header.key); it != keys_.end()) return it->second;
  const auto tensor = tensors_.find(tensor_of(header.key));
  if (tensor == tensors_.end()) {
    throw WireError("PUSH: " + settings_.ranks[rank] + " pushes tensor " +
                    std::to_string(tensor_of(header.key)) + " that it has not declared");
  }
  if (piece_of(header.key) >= tensor->second->cut.pieces())
    throw WireError("PUSH: piece beyond the tensor's end");
  return make(header.key, tensor->second);
}

const KeyState* KeyTable::find(uint64_t key) const {
  const auto it = keys_.find(key);
  return it == keys_.end() ? nullptr : &it->second;
}

void KeyTable::forget(const std::vector<uint32_t>& tensors, const std::function<void(KeyState&)>& before) {
  for (const uint32_t id : tensors) {
    const auto tensor = tensors_.find(id);
    if (tensor == tensors_.end()) continue;
    for (uint32_t piece = 0; piece < tensor->second->cut.pieces(); ++piece) {
      const auto it = keys_.find(make_key(id, piece));
      if (it == keys_.end()) continue;
      before(it->second);
      bytes_ -= it->second.length;
      counters_.declared_bytes.fetch_sub(it->second.length, std::memory_order_relaxed);
      keys_.erase(it);
    }
    tensors_.erase(tensor);
  }
}

}  // namespace byteps
