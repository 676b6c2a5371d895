// Events of the core as Python tuples.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "base/event_queue.h"

namespace byteps {

inline nanobind::list events_to_python(EventQueue& queue) {
  nanobind::list out;
  for (const Event& event : queue.drain()) {
    // Text that came from a peer need not be UTF-8.
    PyObject* text =
        PyUnicode_DecodeUTF8(event.text.data(), static_cast<Py_ssize_t>(event.text.size()), "replace");
    if (!text) throw nanobind::python_error();
    out.append(nanobind::make_tuple(event.kind, event.number, nanobind::steal(text)));
  }
  return out;
}

}  // namespace byteps
