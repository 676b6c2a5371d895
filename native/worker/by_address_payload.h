// Between processes of one machine that can read each other: a frame only says where the payload lies, and
// its receiver copies it. Around any other strategy, which still says what the payload is.
#pragma once

#include "transport/shm/lease.h"
#include "transport/shm/peer_memory.h"
#include "worker/payload.h"

namespace byteps {

class IoThread;

// What the two processes of a link know of each other's memory.
struct ReadableMemory {
  ReadableMemory(pid_t peer, IoThread& thread, uint16_t server)
      : peer(peer), thread(thread), server(server) {}
  PeerMemory peer;
  Lease lease;  // of contributions that were offered to the server
  Offer offer;  // the payload of the RESULT that is coming in
  IoThread& thread;
  const uint16_t server;
};

class ByAddressPayload final : public Payload {
 public:
  ByAddressPayload(Payload& payload, ReadableMemory& memory) : payload_(payload), memory_(memory) {}

  SendOrder::Readiness begin(Route& route) override { return payload_.begin(route); }
  uint32_t wire_bytes(const Route& route, uint32_t position) const override {
    return payload_.wire_bytes(route, position);
  }
  bool prepare(Route& route, uint32_t position) override { return payload_.prepare(route, position); }
  std::optional<Elements> fill(OutFrame& out, Route& route, uint32_t position) override;
  std::byte* landing(const Header& header, const Route& route, uint32_t position) override;
  std::optional<uint32_t> landed(const Header& header, Route& route, uint32_t position) override;
  void visit_memory(const Route& route, const Visit& visit) const override {
    payload_.visit_memory(route, visit);
  }

 private:
  void fetch(const Header& header, const Route& route, std::byte* to);

  Payload& payload_;
  ReadableMemory& memory_;
};

}  // namespace byteps
