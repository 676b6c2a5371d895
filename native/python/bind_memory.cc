// Whether two processes can read each other's memory: asked in the handshake of a data connection.
#include <nanobind/stl/pair.h>

#include "python/bind.h"
#include "transport/shm/peer_memory.h"

namespace nb = nanobind;

namespace byteps {

void bind_memory(nb::module_& m) {
  m.def("memory_nonce", &memory_nonce);
  m.def(
      "can_read", [](int pid, uint64_t address, uint64_t value) { return can_read(pid, address, value); },
      nb::arg("pid"), nb::arg("address"), nb::arg("value"));
}

}  // namespace byteps
