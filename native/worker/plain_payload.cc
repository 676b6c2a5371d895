#include "worker/plain_payload.h"

#include "local/group.h"
#include "worker/client.h"

namespace byteps {

// To a broadcast only the machine of its root contributes anything.
uint32_t PlainPayload::wire_bytes(const Route& route, uint32_t position) const {
  const Operation& op = *route.op;
  if ((op.flags & kFlagBroadcast) && client_.child_of(op.root) != client_.child()) return 0;
  return route.tensor->cut.length_of(route.pieces[position]);
}

std::optional<Payload::Elements> PlainPayload::fill(OutFrame& out, Route& route, uint32_t position) {
  const Tensor& tensor = *route.tensor;
  const uint32_t piece = route.pieces[position];
  // Summed once: the sum may lie where this rank's own contribution was.
  if (tensor.group && !was_sent(route.state_of(position)) && !tensor.group->gather(*route.op, piece))
    return {};
  const Elements elements{route.pushed_memory() + tensor.cut.offset_of(piece), wire_bytes(route, position),
                          tensor.dtype};
  out.payload = elements.data;
  out.header.length = elements.bytes;
  out.header.dtype = static_cast<uint8_t>(elements.dtype);
  out.header.detail = client_.child_of(route.op->root);
  return elements;
}

}  // namespace byteps
