#include <nanobind/stl/optional.h>

#include <cctype>
#include <string>

#include "python/bind.h"
#include "python/events.h"

namespace nb = nanobind;

namespace byteps {

void bind_failure(nb::module_& m) {
  auto kinds = nb::enum_<FailureKind>(m, "FailureKind");
  for (const FailureKind kind : kFailureKinds) {
    std::string name = name_of(kind);
    for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
    kinds.value(name.c_str(), kind);
  }

  nb::class_<Event>(m, "Event")
      .def_prop_ro("failure",
                   [](const Event& e) {
                     return e.what == Event::What::failure ? std::optional(e.kind) : std::nullopt;
                   })
      .def_prop_ro("role", [](const Event& e) { return name_of(e.role); })
      .def_ro("number", &Event::number)
      .def_ro("connection", &Event::connection)
      .def_prop_ro("text", [](const Event& e) { return text_to_python(e.text); });
}

}  // namespace byteps
