// A secret that two ends make in the open, and that nobody can make again later: forward secrecy.
#pragma once

#include <optional>

#include "transport/sealed/aead.h"

namespace byteps::sealed {

// The public half of a private one (32 random bytes); none where libcrypto has no X25519.
std::optional<Key> x25519_public(const Key& own_private);
// What both ends get; none if the other's half is one of the few that would make it known to all.
std::optional<Key> x25519_shared(const Key& own_private, const Key& their_public);

}  // namespace byteps::sealed
