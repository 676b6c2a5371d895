// Elements as they are: this rank's own, or the sum of this machine's ranks in the tensor's type.
#pragma once

#include "worker/payload.h"

namespace byteps {

class Client;

class PlainPayload final : public Payload {
 public:
  explicit PlainPayload(const Client& client) : client_(client) {}

  uint32_t wire_bytes(const Route& route, uint32_t position) const override;
  std::optional<Elements> fill(OutFrame& out, Route& route, uint32_t position) override;

 private:
  const Client& client_;
};

}  // namespace byteps
