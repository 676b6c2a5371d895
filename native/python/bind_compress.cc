// The codecs, for tests that compare them with the NumPy reference and for `bps bench compress`.
//
// Arrays come as addresses; the caller keeps them alive and vouches for their length. The GIL is released
// while bytes are worked on. A codec is used by one thread at a time.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "compress/codec.h"
#include "compress/declared.h"
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
                            bool natural, bool nearest, bool feedback, bool halves, uint64_t seed,
                            uint64_t key, const std::string& kernels) {
  compress::CodecSpec spec;
  spec.kind = compress::codec_kind(name);
  spec.k = k;
  spec.scaling = scaling;
  spec.l2 = l2;
  spec.natural = natural;
  spec.nearest = nearest;
  spec.feedback = feedback;
  spec.halves = halves;
  return compress::make_codec(spec, elements, seed, key, kernels_named(kernels));
}

compress::DeclaredCodec declare(const std::string& name, double k, bool scaling, bool l2, bool natural,
                                bool nearest, bool halves, const std::string& feedback, uint64_t seed,
                                const std::string& text) {
  compress::DeclaredCodec codec;
  codec.spec.kind = compress::codec_kind(name);
  codec.spec.k = k;
  codec.spec.scaling = scaling;
  codec.spec.l2 = l2;
  codec.spec.natural = natural;
  codec.spec.nearest = nearest;
  codec.spec.halves = halves;
  codec.spec.text = text;
  codec.seed = seed;
  const std::string kinds[] = {"", "vanilla", "corrected", "sparse"};
  const auto* found = std::find(std::begin(kinds), std::end(kinds), feedback);
  if (found == std::end(kinds)) throw std::invalid_argument("unknown error feedback \"" + feedback + "\"");
  codec.feedback = static_cast<compress::Feedback>(found - kinds);
  codec.spec.feedback = codec.feedback != compress::Feedback::none;
  return codec;
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
           nb::arg("nearest") = false, nb::arg("feedback") = false, nb::arg("halves") = false,
           nb::arg("seed") = 1, nb::arg("key") = 0, nb::arg("kernels") = "best")
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
          [](Codec& codec, uintptr_t g, float c, uintptr_t error, uint32_t round, uintptr_t out, float a) {
            return codec.encode_with_feedback(at<const float>(g), a, c, at<float>(error), round,
                                              at<std::byte>(out));
          },
          nb::arg("g"), nb::arg("c"), nb::arg("error"), nb::arg("round"), nb::arg("out"), nb::arg("a") = 1.0f,
          unlocked);
  nb::class_<compress::DeclaredCodec>(m, "CodecParams")
      .def(nb::new_(&declare), nb::arg("name"), nb::kw_only(), nb::arg("k") = 0.0, nb::arg("scaling") = false,
           nb::arg("l2") = false, nb::arg("natural") = false, nb::arg("nearest") = false,
           nb::arg("halves") = false, nb::arg("feedback") = "", nb::arg("seed") = 1, nb::arg("text") = "");
  nb::class_<compress::Momentum>(m, "Momentum")
      .def(
          "__init__",
          [](compress::Momentum* self, uint8_t dtype, size_t elements) {
            if (!valid(dtype) || !is_float(static_cast<DType>(dtype)))
              throw nb::value_error("momentum is for floating point");
            new (self) compress::Momentum(static_cast<DType>(dtype), elements);
          },
          nb::arg("dtype"), nb::arg("elements"))
      .def(
          "apply",
          [](compress::Momentum& momentum, uintptr_t src, uintptr_t dst, double mu) {
            momentum.apply(at<const std::byte>(src), at<std::byte>(dst), mu);
          },
          nb::arg("src"), nb::arg("dst"), nb::arg("mu"), unlocked)
      .def_prop_ro("memory", [](compress::Momentum& momentum) {
        return std::pair<uintptr_t, size_t>(reinterpret_cast<uintptr_t>(momentum.state()),
                                            momentum.state_bytes());
      });
  m.def(
      "stream_key",
      [](const std::string& name, uint32_t partition, const compress::DeclaredCodec& codec, uint32_t sender) {
        return compress::stream_key(name, partition, codec.spec, sender);
      },
      nb::arg("name"), nb::arg("partition"), nb::arg("codec"), nb::arg("sender"));
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
