// What the rules for compressed contributions share: the codec of a key as a server uses it.
#pragma once

#include "aggregator/tensor/key_info.h"
#include "base/error.h"
#include "base/memory.h"
#include "compress/declared.h"

namespace byteps {

// The random stream that the server draws from for this key. A compressed partition is one piece.
inline uint64_t server_stream(const KeyInfo& key) {
  constexpr uint32_t kServer = 0;  // as a sender
  return stream_key(key.tensor->name, piece_of(key.key), key.tensor->codec->spec, kServer);
}

// Runs `make`, which makes a codec of the declared kind and needs this many floats for each element.
// Contributions may be short, but what they are added to has the size of the whole piece: it asks for memory
// first. Throws WireError if the declared codec cannot be.
template <class Make>
void make_for_key(const KeyInfo& key, size_t floats, Make make) {
  MemoryGate::shared().ask(floats * key.elements() * sizeof(float));
  try {
    make();
  } catch (const std::invalid_argument& error) {
    throw WireError("PUSH: " + key.tensor->name + ": " + error.what());
  }
}

}  // namespace byteps
