// Events of the core as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include "base/event_queue.h"

namespace byteps {

// Text that came from a peer, or was cut to fit, need not be UTF-8.
inline nanobind::str text_to_python(const std::string& text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (!made) throw nanobind::python_error();
  return nanobind::steal<nanobind::str>(made);
}

inline nanobind::list events_to_python(EventQueue& queue) {
  nanobind::list out;
  for (Event& event : queue.drain()) out.append(nanobind::cast(std::move(event)));
  return out;
}

}  // namespace byteps
