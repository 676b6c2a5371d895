// The sum of this machine's ranks of a half type, as float32: it is rounded once, by the servers.
#pragma once

#include "base/buffer.h"
#include "worker/payload.h"

namespace byteps {

class Client;

class WidePayload final : public Payload {
 public:
  WidePayload(const Client& client, BufferPool& pool) : client_(client), pool_(pool) {}

  uint32_t wire_bytes(const Route& route, uint32_t position) const override;
  std::optional<Elements> fill(OutFrame& out, Route& route, uint32_t position) override;

 private:
  const Client& client_;
  BufferPool& pool_;
};

}  // namespace byteps
