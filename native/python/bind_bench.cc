// What `bps bench` needs from C++: the bounds it compares with. Not part of the library's own data path.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "bench/cipher_speed.h"
#include "bench/plain_memory.h"
#include "bench/plain_sockets.h"
#include "python/bind.h"

namespace nb = nanobind;

namespace byteps {

void bind_bench(nb::module_& module) {
  using bench::PlainShape;
  module.def(
      "plain_worker",
      [](const std::vector<int>& streams, std::uintptr_t address, std::size_t nbytes, std::size_t chunk_bytes,
         std::size_t window, std::size_t rounds) {
        // The caller passes the address of an array that outlives the call, as everywhere in this module.
        bench::plain_worker(streams, reinterpret_cast<float*>(address),
                            PlainShape{nbytes, chunk_bytes, window, rounds});
      },
      nb::arg("streams"), nb::arg("address"), nb::arg("nbytes"), nb::arg("chunk_bytes"), nb::arg("window"),
      nb::arg("rounds"), nb::call_guard<nb::gil_scoped_release>(),
      "Run rounds of the plain-socket bound as a worker: send the float32 array, get the sum in place.");
  module.def(
      "plain_server",
      [](const std::vector<std::vector<int>>& streams, std::size_t first, std::size_t total,
         std::size_t nbytes, std::size_t chunk_bytes, std::size_t rounds) {
        bench::plain_server(streams, first, total, PlainShape{nbytes, chunk_bytes, 0, rounds});
      },
      nb::arg("streams"), nb::arg("first"), nb::arg("total"), nb::arg("nbytes"), nb::arg("chunk_bytes"),
      nb::arg("rounds"), nb::call_guard<nb::gil_scoped_release>(),
      "Run rounds of the plain-socket bound as a summing process; streams[s][w]: stream first + s of worker "
      "w.");
  module.def(
      "cipher_seconds",
      [](std::size_t nbytes) {
        const auto taken = bench::cipher_seconds(sealed::ciphers_here().at(0), nbytes);
        return std::pair{taken.sealing, taken.opening};
      },
      nb::arg("nbytes"), nb::call_guard<nb::gil_scoped_release>(),
      "Processor seconds that this machine's best cipher takes to seal and to open so many bytes.");
  module.def(
      "plain_memory",
      [](const std::vector<std::uintptr_t>& buffers, std::size_t rank, std::size_t nbytes, std::size_t rounds,
         std::uintptr_t barrier, double timeout_s) {
        std::vector<float*> floats;
        for (const std::uintptr_t address : buffers) floats.push_back(reinterpret_cast<float*>(address));
        bench::plain_memory(floats, rank, nbytes, rounds, *reinterpret_cast<bench::PlainBarrier*>(barrier),
                            timeout_s);
      },
      nb::arg("buffers"), nb::arg("rank"), nb::arg("nbytes"), nb::arg("rounds"), nb::arg("barrier"),
      nb::arg("timeout_s"), nb::call_guard<nb::gil_scoped_release>(),
      "Run rounds of the shared-memory bound as one process: sum float32 buffers in place; barrier: address "
      "of 8 shared bytes that were zero.");
}

}  // namespace byteps
