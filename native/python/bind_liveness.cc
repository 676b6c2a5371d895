#include "liveness/liveness.h"
#include "python/bind.h"
#include "python/endpoints.h"
#include "python/events.h"

namespace nb = nanobind;

namespace byteps {

void bind_liveness(nb::module_& m) {
  nb::class_<Liveness>(m, "Liveness")
      .def(nb::init<uint64_t, double, double>(), nb::arg("job"), nb::arg("interval_s"), nb::arg("timeout_s"))
      .def("fileno", [](Liveness& l) { return l.events().fileno(); })
      .def(
          "add",
          [](Liveness& l, int fd, int peer, const sealed::SessionKeys* keys) {
            l.add(endpoint_of(fd, keys), peer);
          },
          nb::arg("fd"), nb::arg("peer"), nb::arg("keys") = nb::none())
      .def("remove", &Liveness::remove, nb::arg("peer"))
      .def("listen_for", &Liveness::listen_for, nb::arg("peer"))
      .def("events", [](Liveness& l) { return events_to_python(l.events()); })
      .def("close", &Liveness::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace byteps
