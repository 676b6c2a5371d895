// The payload of a frame with kFlagByAddress: where the real payload lies in the sender's memory.
//
// Between processes of one machine that can read each other (tried in the handshake) the receiver copies the
// bytes out of the sender's memory itself: one copy instead of two, and none in the sender. An address alone
// would not be safe: the sender may give the memory up (an operation that timed out, a server that closes)
// while the frame is on its way, and the receiver would take whatever lies there now for the payload. So the
// sender also says where its lease is, a word that it changes before it gives up anything it has offered.
// The receiver copies first and looks at the lease afterwards: if it still holds the ticket, every byte was
// copied while it was valid.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byteps {

struct Offer {
  uint64_t address = 0;  // of the first byte; their number is the length of the key's piece
  uint64_t lease = 0;    // address of the sender's lease
  uint64_t ticket = 0;   // what the lease must still say when the bytes have been copied
};

constexpr size_t kOfferBytes = 24;
static_assert(sizeof(Offer) == kOfferBytes && offsetof(Offer, lease) == 8 && offsetof(Offer, ticket) == 16);

}  // namespace byteps
