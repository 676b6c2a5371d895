#include "worker/payload.h"

#include "base/error.h"
#include "worker/tensor.h"

namespace byteps {

std::byte* Payload::landing(const Header& header, const Route& route, uint32_t position) {
  const uint32_t piece = route.pieces[position];
  const uint32_t expected = route.tensor->cut.length_of(piece);
  if (header.codec != 0) {
    throw WireError("RESULT: " + route.tensor->name + ": " + std::to_string(header.length) +
                    " bytes of codec " + std::to_string(header.codec) + ", expected at most 0");
  }
  if (header.length != expected) {
    throw WireError("RESULT: " + route.tensor->name + ": " + std::to_string(header.length) +
                    " bytes, expected " + std::to_string(expected));
  }
  return route.op->landing() + route.tensor->cut.offset_of(piece);
}

std::optional<uint32_t> Payload::landed(const Header& header, Route&, uint32_t) { return header.length; }

void Payload::visit_memory(const Route& route, const Visit& visit) const {
  visit(route.op->src, route.tensor->cut.tensor_bytes);
  visit(route.op->landing(), route.tensor->cut.tensor_bytes);
}

}  // namespace byteps
