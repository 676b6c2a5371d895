// Codecs that live in Python: for research, slow, through the same pipeline as the others.
//
// What Python has registered is behind one function, byteps.compress.custom.adapter, and takes addresses: no
// array type is known here. A thread of the pool (worker) or of a shard (server) takes the GIL for each call.
// What Python raises becomes a WireError: on a worker the round is refused with its text, on a server the
// round fails with it.
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "compress/codec.h"
#include "python/bind.h"
#include "reduce/sum.h"

namespace nb = nanobind;

namespace byteps {
namespace {

template <class Call>
auto in_python(Call&& call) {
  const nb::gil_scoped_acquire locked;
  try {
    return call();
  } catch (nb::python_error& error) {
    throw WireError(std::string("the codec in Python: ") + error.what());
  } catch (const nb::cast_error&) {
    throw WireError("the codec in Python returned something else than a number of bytes");
  }
}

uintptr_t address(const void* data) { return reinterpret_cast<uintptr_t>(data); }

class PythonCodec final : public compress::Codec {
 public:
  PythonCodec(nb::object codec, size_t max_bytes, size_t elements, const compress::Kernels& kernels)
      : Codec(elements, kernels), codec_(std::move(codec)), max_bytes_(max_bytes), decoded_(elements) {}
  ~PythonCodec() override {
    if (!Py_IsInitialized()) {
      codec_.release();  // the interpreter is gone, and the object with it
      return;
    }
    const nb::gil_scoped_acquire locked;
    codec_.reset();
  }

  size_t max_bytes() const override { return max_bytes_; }

  size_t encode(const float* x, uint32_t round, std::byte* out) override {
    const size_t bytes =
        in_python([&] { return nb::cast<size_t>(codec_.attr("encode")(address(x), round, address(out))); });
    if (bytes == 0 || bytes > max_bytes_) throw WireError("the codec in Python wrote beyond its max_bytes");
    return bytes;
  }
  void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) override {
    in_python([&] {
      codec_.attr("decode")(address(in), bytes, round, address(out));
      return 0;
    });
  }
  void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) override {
    decode(in, bytes, round, decoded_.data());
    add(DType::f32, acc, decoded_.data(), elements_);
  }
  size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                              std::byte* out) override {
    kernels_.feedback(g, a, c, error, elements_);
    const size_t bytes = encode(error, round, out);
    decode(out, bytes, round, decoded_.data());
    kernels_.subtract(decoded_.data(), error, elements_);
    return bytes;
  }

 private:
  nb::object codec_;
  const size_t max_bytes_;
  std::vector<float> decoded_;
};

std::unique_ptr<compress::Codec> make_python_codec(const compress::CodecSpec& spec, size_t elements,
                                                   uint64_t seed, uint64_t key,
                                                   const compress::Kernels& kernels) {
  return in_python([&] {
    nb::object codec =
        nb::module_::import_("byteps.compress.custom").attr("adapter")(spec.text, elements, seed, key);
    const auto max_bytes = nb::cast<size_t>(codec.attr("max_bytes"));
    return std::make_unique<PythonCodec>(std::move(codec), max_bytes, elements, kernels);
  });
}

}  // namespace

void bind_custom_codec(nb::module_&) { compress::set_custom_factory(&make_python_codec); }

}  // namespace byteps
