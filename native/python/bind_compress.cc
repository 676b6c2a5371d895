// The codecs, for tests that compare them with the NumPy reference and for `bps bench compress`.
//
// Arrays come as addresses; the caller keeps them alive and vouches for their length. The GIL is released
// while bytes are worked on. A codec is used by one thread at a time.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "compress/codec.h"
#include "compress/momentum.h"
#include "python/bind.h"

namespace nb = nanobind;

namespace byteps {
namespace {

using compress::Codec;

const compress::Kernels& kernels_named(const std::string& name) {
  if (name == "generic") return compress::generic_kernels();
  if (name == "best") return compress::best_kernels();
  throw std::invalid_argument("unknown kernels \"" + name + "\": expected best or generic");
}

std::unique_ptr<Codec> make(const std::string& name, size_t elements, double k, bool scaling, bool l2,
                            bool natural, bool feedback, uint64_t seed, uint64_t key,
                            const std::string& kernels) {
  compress::CodecSpec spec;
  spec.kind = compress::codec_kind(name);
  spec.k = k;
  spec.scaling = scaling;
  spec.l2 = l2;
  spec.natural = natural;
  spec.feedback = feedback;
  return compress::make_codec(spec, elements, seed, key, kernels_named(kernels));
}

template <class T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

void bind_compress(nb::module_& m) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  nb::class_<Codec>(m, "Codec")
      .def(nb::new_(&make), nb::arg("name"), nb::arg("elements"), nb::kw_only(), nb::arg("k") = 0.0,
           nb::arg("scaling") = false, nb::arg("l2") = false, nb::arg("natural") = false,
           nb::arg("feedback") = false, nb::arg("seed") = 1, nb::arg("key") = 0, nb::arg("kernels") = "best")
      .def_prop_ro("elements", &Codec::elements)
      .def_prop_ro("max_bytes", &Codec::max_bytes)
      .def(
          "encode",
          [](Codec& codec, uintptr_t x, uint32_t round, uintptr_t out) {
            return codec.encode(at<const float>(x), round, at<std::byte>(out));
          },
          nb::arg("x"), nb::arg("round"), nb::arg("out"), unlocked)
      .def(
          "decode",
          [](Codec& codec, uintptr_t payload, size_t nbytes, uint32_t round, uintptr_t out) {
            codec.decode(at<const std::byte>(payload), nbytes, round, at<float>(out));
          },
          nb::arg("payload"), nb::arg("nbytes"), nb::arg("round"), nb::arg("out"), unlocked)
      .def(
          "decode_add",
          [](Codec& codec, uintptr_t payload, size_t nbytes, uint32_t round, uintptr_t acc) {
            codec.decode_add(at<const std::byte>(payload), nbytes, round, at<float>(acc));
          },
          nb::arg("payload"), nb::arg("nbytes"), nb::arg("round"), nb::arg("acc"), unlocked)
      .def(
          "encode_with_feedback",
          [](Codec& codec, uintptr_t g, float c, uintptr_t error, uint32_t round, uintptr_t out) {
            return codec.encode_with_feedback(at<const float>(g), c, at<float>(error), round,
                                              at<std::byte>(out));
          },
          nb::arg("g"), nb::arg("c"), nb::arg("error"), nb::arg("round"), nb::arg("out"), unlocked);
  m.def(
      "nesterov",
      [](uintptr_t momentum, uintptr_t g, float mu, size_t n) {
        compress::nesterov(at<float>(momentum), at<float>(g), mu, n);
      },
      nb::arg("momentum"), nb::arg("g"), nb::arg("mu"), nb::arg("n"), unlocked);
  m.def(
      "copy_memory",
      [](uintptr_t destination, uintptr_t source, size_t nbytes) {
        std::memcpy(at<std::byte>(destination), at<const std::byte>(source), nbytes);
      },
      nb::arg("destination"), nb::arg("source"), nb::arg("nbytes"), unlocked);
}

}  // namespace byteps
