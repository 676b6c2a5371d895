// What is known of a key before anybody has contributed to it: which piece of which tensor it is.
#pragma once

#include <memory>
#include <string>

#include "aggregator/tensor/tensor_table.h"
#include "wire/header.h"

namespace byteps {

struct KeyInfo {
  KeyInfo(uint64_t key, std::shared_ptr<const TensorInfo> tensor);

  const uint64_t key;
  const std::shared_ptr<const TensorInfo> tensor;
  const uint32_t length;  // bytes of its elements

  size_t elements() const { return length / size_of(tensor->dtype); }
};

// For people.
std::string describe(const KeyInfo& key, uint32_t round);

// The header of a frame that answers a contribution to this key.
Header answer(FrameType type, const KeyInfo& key, uint32_t round, int32_t priority);

}  // namespace byteps
