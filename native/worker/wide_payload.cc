#include "worker/wide_payload.h"

#include "local/group.h"
#include "worker/client.h"

namespace byteps {

uint32_t WidePayload::wire_bytes(const Route& route, uint32_t position) const {
  const Tensor& tensor = *route.tensor;
  const size_t elements = tensor.cut.length_of(route.pieces[position]) / size_of(tensor.dtype);
  return static_cast<uint32_t>(elements * sizeof(float));
}

// Made anew for every sending, in a buffer that goes with the frame: the contributions are still there.
std::optional<Payload::Elements> WidePayload::fill(OutFrame& out, Route& route, uint32_t position) {
  const Tensor& tensor = *route.tensor;
  const uint32_t bytes = wire_bytes(route, position);
  try {
    out.keep = pool_.take(bytes);
  } catch (const std::bad_alloc& lack) {
    route.tensor->lack_memory(route.op, lack.what());
    return {};
  }
  auto* sum = reinterpret_cast<float*>(out.keep.data());
  if (!tensor.group->gather_wide(*route.op, route.pieces[position], sum)) return {};
  out.payload = out.keep.data();
  out.header.length = bytes;
  out.header.dtype = static_cast<uint8_t>(DType::f32);
  out.header.detail = client_.child_of(route.op->root);
  return Elements{out.payload, bytes, DType::f32};
}

}  // namespace byteps
