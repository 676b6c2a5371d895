#include "worker/by_address_payload.h"

#include <cstring>

#include "base/error.h"
#include "base/tuning.h"
#include "worker/client.h"
#include "worker/io_thread.h"

namespace byteps {
namespace {

// The frame as it would be if it carried what it offers.
Header carried(const Header& header, const Route& route, uint32_t position) {
  Header made = header;
  made.length = header.codec != 0 ? header.detail : route.tensor->cut.length_of(route.pieces[position]);
  return made;
}

}  // namespace

std::optional<Payload::Elements> ByAddressPayload::fill(OutFrame& out, Route& route, uint32_t position) {
  const auto elements = payload_.fill(out, route, position);
  if (!elements || !route.by_address) return elements;
  Header& header = out.header;
  const uint32_t bytes = header.length;
  const bool empty = bytes == 0;  // nothing to offer, but the answer may come by address
  const uint32_t judged = empty ? route.tensor->cut.length_of(route.pieces[position]) : bytes;
  if (judged < tuning::kByAddressBytes) return elements;
  header.flags |= kFlagByAddress;
  if (empty) return elements;
  if (header.codec != 0) header.detail = bytes;
  const Offer offer = memory_.lease.offer(out.payload);
  out.keep = memory_.thread.pool().take(kOfferBytes);
  std::memcpy(out.keep.data(), &offer, kOfferBytes);
  out.payload = out.keep.data();
  header.length = kOfferBytes;
  return elements;
}

std::byte* ByAddressPayload::landing(const Header& header, const Route& route, uint32_t position) {
  if (!(header.flags & kFlagByAddress)) return payload_.landing(header, route, position);
  payload_.landing(carried(header, route, position), route, position);  // it has to be right all the same
  return reinterpret_cast<std::byte*>(&memory_.offer);
}

std::optional<uint32_t> ByAddressPayload::landed(const Header& header, Route& route, uint32_t position) {
  if (!(header.flags & kFlagByAddress)) return payload_.landed(header, route, position);
  const Header result = carried(header, route, position);
  fetch(result, route, payload_.landing(result, route, position));
  return payload_.landed(result, route, position);
}

// The result itself, out of the server's memory. Why it is still there: see Shard::send_result.
void ByAddressPayload::fetch(const Header& header, const Route& route, std::byte* to) {
  const auto copied = memory_.peer.copy(to, memory_.offer, header.length);
  if (copied == PeerMemory::Copied::yes) return;
  const std::string what = "RESULT: cannot read " + std::to_string(header.length) + " bytes of " +
                           route.tensor->name + " round " + std::to_string(header.round) + " at " +
                           std::to_string(memory_.offer.address) + " from " +
                           memory_.thread.epoch().servers[memory_.server].name + ", ";
  if (copied == PeerMemory::Copied::withdrawn) throw PeerGone(what + "which has closed");
  const std::string error = memory_.peer.error_text();
  if (copied == PeerMemory::Copied::gone) throw PeerGone(what + error);
  throw WireError(what + error + "; BYTEPS_ENABLE_IPC=0 sends payloads over sockets only");
}

}  // namespace byteps
