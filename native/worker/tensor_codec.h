// The codec side of a tensor on a worker: state and buffers of the partitions that this rank pushes.
//
// All memory is allocated when the tensor is declared. The state (error, step, learning rate of the last
// round) belongs to the training state: Python saves and restores it while no operation is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "compress/declared.h"
#include "reduce/dtype.h"
#include "wire/cut.h"
#include "wire/header.h"

namespace byteps {

// One partition. Used by one thread at a time: whoever encodes or decodes it.
struct PartitionCodec {
  std::unique_ptr<compress::Codec> codec;
  size_t elements;
  std::vector<float> error;        // empty: no error feedback
  std::vector<std::byte> payload;  // what is pushed, kept until the result is there
  uint32_t payload_bytes = 0;
  std::vector<std::byte> landing;  // where the payload of a result lands
};

class TensorCodec {
 public:
  // sender: see compress::stream_key.
  TensorCodec(const compress::DeclaredCodec& declared, std::string_view name, DType dtype, const Cut& cut,
              const std::vector<uint32_t>& partitions, uint32_t sender);

  const compress::DeclaredCodec declared;
  // Null for a partition that another rank of this machine pushes.
  PartitionCodec* of(uint32_t partition) const { return partitions_[partition].get(); }
  uint8_t kind() const { return static_cast<uint8_t>(declared.spec.kind); }

  // An operation begins: what its contributions say, and the factor of the old error.
  struct Begun {
    CodecTerms terms;
    float factor;
  };
  Begun begin(uint32_t round, float lr);

  // payload = C(scale * x + factor * error), or without the error. `x` has the tensor's type.
  void encode(PartitionCodec& partition, DType dtype, const std::byte* x, float scale, const Begun& begun);
  // The same of float32 in a scratch of this thread's, which is overwritten.
  void encode_wide(PartitionCodec& partition, float* x, float scale, const Begun& begun);
  // out = decode(landing)
  void decode(PartitionCodec& partition, DType dtype, size_t bytes, uint32_t step, std::byte* out);

  // Memory of this thread for so many elements; valid until the next call.
  static float* scratch(size_t elements);

  // State.
  uint32_t step(uint32_t next_round) const { return first_step_ + next_round; }
  void set_step(uint32_t step, uint32_t next_round) { first_step_ = step - next_round; }
  float previous_lr() const { return previous_lr_; }
  void set_previous_lr(float lr) { previous_lr_ = lr; }

 private:
  std::vector<std::unique_ptr<PartitionCodec>> partitions_;
  uint32_t first_step_ = 0;  // of round 0
  float previous_lr_ = 0;
};

}  // namespace byteps
