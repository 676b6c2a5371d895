// The extension module byteps._core.
#include "python/bind.h"

NB_MODULE(_core, m) {
  m.doc() = "The native core of byteps: see src/byteps/_core.pyi for its surface.";
  // A handle that a script still holds when the interpreter ends is not a leak worth twenty lines on its
  // screen.
  nanobind::set_leak_warnings(false);
  byteps::bind_errors(m);
  byteps::bind_failure(m);
  byteps::bind_wire(m);
  byteps::bind_reduce(m);
  byteps::bind_compress(m);
  byteps::bind_custom_codec(m);
  byteps::bind_sealed(m);
  byteps::bind_liveness(m);
  byteps::bind_aggregator(m);
  byteps::bind_local(m);
  byteps::bind_worker(m);
  byteps::bind_bench(m);
  byteps::bind_memory(m);
  byteps::bind_observe(m);
}
