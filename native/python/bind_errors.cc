// Errors of the system as Python knows them: an OSError with its number, instead of nanobind's RuntimeError.
// Callers tell a lack of descriptors or threads from a bug by that number.
#include <system_error>

#include "python/bind.h"

namespace nb = nanobind;

namespace byteps {

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {  // anything else goes on to the next translator
      PyErr_SetObject(PyExc_OSError, nb::make_tuple(error.code().value(), error.what()).ptr());
    }
  });
}

}  // namespace byteps
