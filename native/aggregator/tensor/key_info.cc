#include "aggregator/tensor/key_info.h"

namespace byteps {

KeyInfo::KeyInfo(uint64_t key, std::shared_ptr<const TensorInfo> tensor)
    : key(key), tensor(std::move(tensor)), length(this->tensor->cut.length_of(piece_of(key))) {}

std::string describe(const KeyInfo& key, uint32_t round) {
  std::string text = key.tensor->name;
  if (key.tensor->cut.pieces() > 1) text += " piece " + std::to_string(piece_of(key.key));
  return text + " (key " + std::to_string(key.tensor->id) + ") round " + std::to_string(round);
}

Header answer(FrameType type, const KeyInfo& key, uint32_t round, int32_t priority) {
  Header header;
  header.type = type;
  header.dtype = static_cast<uint8_t>(key.tensor->dtype);
  header.key = key.key;
  header.round = round;
  header.priority = priority;
  return header;
}

}  // namespace byteps
