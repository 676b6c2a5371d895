// The contract of a codec: float32 elements of one partition to bytes and back.
//
// A codec belongs to one partition and to one thread at a time. What it needs it allocates when it is made;
// afterwards no call allocates. It keeps no state between calls: the error of error feedback is the caller's
// memory, and random numbers are functions of (seed, key, round, index), so a repeated call repeats the
// bytes.
//
// Kernels are chosen for the processor (kernels.h); the bytes are the same with all of them, and the same as
// those of the NumPy reference in src/byteps/compress/reference. Bytes are little-endian. The format of each
// codec stands at the top of its file, and all of them in docs/compression-format.md.
//
// A payload comes from a peer: decode and decode_add throw WireError when anything about it is not as encode
// writes it, and never touch memory beyond `bytes` and the partition. What a throw leaves in out or acc:
// onebit, topk, randomk and fp16 check before they write; dithering, int8 and int4 may have written a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "compress/kernels.h"

namespace byteps::compress {

// The numbers are for the wire and never change.
enum class CodecKind : uint8_t {
  onebit = 1,
  topk = 2,
  randomk = 3,
  dithering = 4,
  fp16 = 5,
  int8 = 6,
  int4 = 7,
  custom = 255
};
constexpr CodecKind kLastKind = CodecKind::int4;

struct CodecSpec {
  CodecKind kind = CodecKind::onebit;
  double k = 0;           // topk, randomk: fraction (below 1) or count; dithering: levels
  bool scaling = false;   // onebit
  bool l2 = false;        // dithering: scale is the l2 norm, not the maximum
  bool natural = false;   // dithering: levels are powers of two
  bool nearest = false;   // int8, int4: round to the nearest code, not at random
  bool feedback = false;  // there is error feedback: randomk does not scale its values
  bool halves = false;    // topk, randomk: values travel as 16-bit floats
  std::string text;       // custom: the parameters as Python wrote them

  bool operator==(const CodecSpec&) const = default;
};

class Codec {
 public:
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  size_t elements() const { return elements_; }

  // Room that `out` must have. A payload is shorter: writers store whole words.
  virtual size_t max_bytes() const = 0;

  // Returns the bytes of the payload.
  virtual size_t encode(const float* x, uint32_t round, std::byte* out) = 0;
  // out = C(in)
  virtual void decode(const std::byte* in, size_t bytes, uint32_t round, float* out) = 0;
  // acc += C(in), without a decoded copy.
  virtual void decode_add(const std::byte* in, size_t bytes, uint32_t round, float* acc) = 0;

  // p = a * g + c * error; out = C(p); error = p - decode(C(p)); in as few walks through memory as the codec
  // allows.
  virtual size_t encode_with_feedback(const float* g, float a, float c, float* error, uint32_t round,
                                      std::byte* out) = 0;

 protected:
  Codec(size_t elements, const Kernels& kernels) : elements_(elements), kernels_(kernels) {}

  const size_t elements_;
  const Kernels& kernels_;
};

// What topk and randomk send of a partition: at least one element, at most all.
size_t count_of(const CodecSpec& spec, size_t elements);

// Throws std::invalid_argument when the spec or the number of elements cannot be (Python has checked both).
// seed and key: randomk needs the same on every member; dithering of different senders should differ in one
// of them, so that their errors do not add up.
std::unique_ptr<Codec> make_codec(const CodecSpec& spec, size_t elements, uint64_t seed, uint64_t key,
                                  const Kernels& kernels = best_kernels());

// Of params.py; throws std::invalid_argument.
CodecKind codec_kind(std::string_view name);

// Makes codecs of CodecKind::custom, which live in Python; set once, when the extension module is loaded.
using CustomFactory = std::function<std::unique_ptr<Codec>(const CodecSpec&, size_t elements, uint64_t seed,
                                                           uint64_t key, const Kernels&)>;
void set_custom_factory(CustomFactory factory);

}  // namespace byteps::compress
