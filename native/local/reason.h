// A failure as it lies on the board, where ranks read what another one wrote. Writing it takes no memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/failure.h"

namespace byteps::board {

// All zeros: none. What does not fit is cut off.
struct Reason {
  FailureKind kind;
  Role role;
  uint16_t host_bytes;
  uint16_t message_bytes;
  int32_t rank;
  char text[500];  // the host, then the message

  void set(const Failure& failure) noexcept {
    kind = failure.kind;
    role = failure.role;
    rank = failure.rank;
    host_bytes = static_cast<uint16_t>(failure.host.copy(text, sizeof text));
    message_bytes = static_cast<uint16_t>(failure.message.copy(text + host_bytes, sizeof text - host_bytes));
  }
  Failure failure() const noexcept {
    return worded({kind, {}, role, rank}, [this](Failure& failure) {
      failure.message = message();
      failure.host = host();
    });
  }
  std::string_view message() const { return std::string_view(text + host_bytes, message_bytes); }
  std::string_view host() const { return std::string_view(text, host_bytes); }
};
static_assert(sizeof(Reason) == 512);

}  // namespace byteps::board
