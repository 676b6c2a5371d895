// The state of a piece of an operation, on the link over which it travels to its server.
//
//               compressed             sent                   answered
//   unready ───────────────▶ ready ──────────▶ sent ────────────────────────▶ answered
//                                               │ ▲                              ▲
//                       RESEND, connection gone │ │ sent again                   │ answered
//                                               ▼ │                              │ all the same
//                                              again ────────────────────────────┘
//
//   state      may be sent      WANT of the server            RESEND, RESULT, ERROR, STALL of the server
//   unready    when compressed  ignored                       breaks the protocol: it was not pushed
//   ready      in its order     sent before all others        breaks the protocol: it was not pushed
//   sent       no               ignored: it is in flight      again, or answered
//   again      next             ignored: it is next anyway    nothing new, or answered
//   answered   no               ignored                       ignored: nobody waits for it
//
// A plain piece begins as `ready`, one that must be compressed first as `unready`. A REFUSE counts as
// sending: the server answers it like a contribution.
#pragma once

#include <cstdint>

namespace byteps {

enum class PieceState : uint8_t {
  unready,   // must be compressed before it can be sent
  ready,     // can be sent, and was not sent yet
  sent,      // was given to the wire, and has no answer
  again,     // was sent, and has to be once more: the server has not kept it, or the connection is gone
  answered,  // its result, or its failure, has come
};

inline bool was_sent(PieceState state) { return state >= PieceState::sent; }

}  // namespace byteps
