#include <nanobind/stl/vector.h>

#include <cstring>

#include "observe/ring.h"
#include "python/bind.h"
#include "python/events.h"

namespace nb = nanobind;

namespace byteps {
namespace {

// As the bytes of a packed array, for NumPy or struct: see byteps.observe.ring, which names its fields.
nb::bytes packed(const std::vector<TraceEvent>& events) {
  return nb::bytes(reinterpret_cast<const char*>(events.data()), events.size() * sizeof(TraceEvent));
}

}  // namespace

void bind_observe(nb::module_& m) {
  nb::list names;
  for (const char* name : kStageNames) names.append(name);
  m.attr("STAGES") = nb::tuple(names);
  m.attr("EVENT_BYTES") = sizeof(TraceEvent);
  m.def(
      "read_rings",
      [](const std::vector<uint64_t>& from) {
        std::vector<RingEvents> rings;
        {
          nb::gil_scoped_release release;
          rings = read_rings(from);
        }
        nb::list out;
        for (const RingEvents& ring : rings) {
          out.append(nb::make_tuple(text_to_python(ring.thread), ring.next, ring.lost, packed(ring.events)));
        }
        return out;
      },
      nb::arg("since") = std::vector<uint64_t>{});
  m.def(
      "record_step",
      [](uint32_t step) { record({.stage = Stage::step, .round = step, .at_ns = machine_now_ns()}); },
      nb::arg("step"));
}

}  // namespace byteps
