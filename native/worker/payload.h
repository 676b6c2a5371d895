// How the contribution to a piece becomes the payload of a PUSH, and a RESULT becomes elements of the tensor.
//
// A strategy is chosen when an operation is submitted to a route (payloads.h) and does the rest of it: nobody
// else asks what kind of payload it is. A link has one object of each kind; what belongs to an operation is
// in its route. All of it is called by the thread of the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "reduce/dtype.h"
#include "transport/link.h"
#include "worker/send_order.h"

namespace byteps {

struct Route;

class Payload {
 public:
  virtual ~Payload() = default;

  // ---- sending

  // An operation begins: how its pieces come into the order.
  virtual SendOrder::Readiness begin(Route&) { return SendOrder::Readiness::ready; }
  // What a piece that is ready takes on the wire.
  virtual uint32_t wire_bytes(const Route& route, uint32_t position) const = 0;
  // Makes a piece ready that is made on demand. False: the operation has failed.
  virtual bool prepare(Route&, uint32_t) { return true; }
  // What a piece contributes, for counters and samples: elements as they were before they became a payload.
  struct Elements {
    const std::byte* data;
    uint32_t bytes;
    DType dtype;
  };
  // Completes a PUSH whose header says already what holds for all of them: the payload, and the fields of the
  // header that say what it is. None: the operation has failed.
  virtual std::optional<Elements> fill(OutFrame& out, Route& route, uint32_t position) = 0;

  // ---- receiving; unless a strategy says otherwise, elements come and lie in the operation's memory at once

  // Where the payload of a RESULT lands. Throws WireError if it cannot be one.
  virtual std::byte* landing(const Header& header, const Route& route, uint32_t position);
  // It has landed. What it took on the wire, if its elements lie in the operation's memory now; else they
  // will when its job in the pool of codecs is done.
  virtual std::optional<uint32_t> landed(const Header& header, Route& route, uint32_t position);

  // ---- ending

  // All memory that frames of the operation may point at, coming and going.
  using Visit = std::function<void(const std::byte* begin, size_t bytes)>;
  virtual void visit_memory(const Route& route, const Visit& visit) const;
};

}  // namespace byteps
