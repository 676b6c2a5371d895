#include "aggregator/key_state.h"

#include "wire/header.h"

namespace byteps {

KeyState::KeyState(uint64_t key, std::shared_ptr<const TensorInfo> tensor, uint16_t children, bool rank_order)
    : key(key),
      tensor(std::move(tensor)),
      length(this->tensor->cut.length_of(static_cast<uint32_t>(key))),
      round(children, rank_order),
      ways(children),
      held(children) {}

std::string describe(const KeyState& key, uint32_t round) {
  std::string text = key.tensor->name;
  if (key.tensor->cut.pieces() > 1) text += " piece " + std::to_string(piece_of(key.key));
  return text + " (key " + std::to_string(key.tensor->id) + ") round " + std::to_string(round);
}

Header answer(FrameType type, const KeyState& key, uint32_t round, int32_t priority) {
  Header header;
  header.type = type;
  header.dtype = static_cast<uint8_t>(key.tensor->dtype);
  header.key = key.key;
  header.round = round;
  header.priority = priority;
  return header;
}

}  // namespace byteps
