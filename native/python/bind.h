// What each bind_*.cc adds to the extension module; only this folder knows Python.
#pragma once

#include <nanobind/nanobind.h>

namespace byteps {

void bind_errors(nanobind::module_& m);
void bind_failure(nanobind::module_& m);
void bind_wire(nanobind::module_& m);
void bind_reduce(nanobind::module_& m);
void bind_compress(nanobind::module_& m);
void bind_custom_codec(nanobind::module_& m);
void bind_liveness(nanobind::module_& m);
void bind_local(nanobind::module_& m);
void bind_aggregator(nanobind::module_& m);
void bind_worker(nanobind::module_& m);
void bind_bench(nanobind::module_& m);
void bind_sealed(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_observe(nanobind::module_& m);

}  // namespace byteps
