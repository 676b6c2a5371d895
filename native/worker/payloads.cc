#include "worker/payloads.h"

#include "base/tuning.h"
#include "local/group.h"
#include "worker/client.h"
#include "worker/io_thread.h"

namespace byteps {

Payloads::Payloads(IoThread& thread, uint16_t server, pid_t peer_pid)
    : plain_(thread.client()), wide_(thread.client(), thread.pool()), compressed_(thread) {
  if (peer_pid <= 0) return;
  memory_.emplace(peer_pid, thread, server);
  plain_by_address_.emplace(plain_, *memory_);
  wide_by_address_.emplace(wide_, *memory_);
  compressed_by_address_.emplace(compressed_, *memory_);
}

void Payloads::choose(Route& route) {
  const auto take = [&](Payload& carried, std::optional<ByAddressPayload>& by_address) {
    route.payload = by_address ? static_cast<Payload*>(&*by_address) : &carried;
  };
  const Operation& op = *route.op;
  if (op.coding) {
    route.by_address = readable();  // payloads lie in memory of ours
    return take(compressed_, compressed_by_address_);
  }
  if (route.tensor->group && LocalGroup::sums_wide(op)) {
    route.by_address = false;  // the sum lies in a buffer that goes with its frame
    return take(wide_, wide_by_address_);
  }
  // Asked of every operation: the caller may come with other memory each time.
  route.by_address = readable() && route.tensor->cut.tensor_bytes >= tuning::kByAddressBytes &&
                     can_offer(route.pushed_memory());
  take(plain_, plain_by_address_);
}

}  // namespace byteps
