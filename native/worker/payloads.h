// The strategies of one link for the payloads of its operations, and the choice between them.
#pragma once

#include <optional>

#include "worker/by_address_payload.h"
#include "worker/compressed_payload.h"
#include "worker/plain_payload.h"
#include "worker/wide_payload.h"

namespace byteps {

class Payloads {
 public:
  // peer_pid: the server's process if each can read the other's memory, else 0.
  Payloads(IoThread& thread, uint16_t server, pid_t peer_pid);
  Payloads(const Payloads&) = delete;
  Payloads& operator=(const Payloads&) = delete;

  // For the operation that the route begins. Allocates nothing.
  void choose(Route& route);
  CompressedPayload& compressed() { return compressed_; }

  bool readable() const { return memory_.has_value(); }
  // What the server has not read yet it drops, and asks again for what belongs to other operations.
  void withdraw_offers() {
    if (memory_) memory_->lease.withdraw();
  }

 private:
  PlainPayload plain_;
  WidePayload wide_;
  CompressedPayload compressed_;
  std::optional<ReadableMemory> memory_;
  std::optional<ByAddressPayload> plain_by_address_, wide_by_address_, compressed_by_address_;
};

}  // namespace byteps
