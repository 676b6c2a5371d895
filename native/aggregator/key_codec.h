// The codec of one key on a server: sums compressed contributions and compresses the sum.
//
// It has its own error, which no worker knows. A new server starts without one.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "compress/declared.h"
#include "compress/round_sum.h"
#include "reduce/dtype.h"
#include "wire/header.h"

namespace byteps {

class KeyCodec {
 public:
  KeyCodec(const compress::DeclaredCodec& declared, std::string_view name, uint32_t partition,
           size_t elements, uint16_t children);

  uint8_t kind() const { return static_cast<uint8_t>(declared_.spec.kind); }
  // Of any payload.
  size_t max_bytes() const { return sum_->max_bytes(); }

  // The first contribution of a round brings the learning rate. Throws WireError for bytes that no codec has
  // written; the round is then lost, and the error stays as it was.
  void add(const std::byte* in, size_t bytes, CodecTerms terms);
  void forget() { is_empty_ = true; }
  // All are added: the payload for everybody, and its bytes. `out` has room for max_bytes().
  size_t finish(uint32_t step, std::byte* out);

  // Asynchronous mode: value += what a contribution decodes to, in the tensor's own type.
  void add_to(DType dtype, std::byte* value, const std::byte* in, size_t bytes, uint32_t step);

 private:
  const compress::DeclaredCodec declared_;
  const size_t elements_;
  const uint64_t key_;
  std::unique_ptr<compress::RoundSum> sum_;
  std::unique_ptr<compress::Codec> decoder_;  // of asynchronous mode
  std::vector<float> error_;                  // empty where there is none to keep
  std::vector<float> decoded_;
  bool is_empty_ = true;
  float lr_ = 0, previous_lr_ = 0;
};

}  // namespace byteps
