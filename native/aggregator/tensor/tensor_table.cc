#include "aggregator/tensor/tensor_table.h"

#include "wire/limits.h"

#include <algorithm>
#include <stdexcept>

namespace byteps {

bool TensorInfo::is_on(uint32_t piece, unsigned shard, unsigned shards) const {
  if (piece >= cut.pieces()) return false;
  uint64_t partition = cut.partition_of(piece);  // counted from the beginning of the run
  for (const Run& run : runs) {
    const uint64_t placed = uint64_t{run.times} * run.shards.size();
    if (partition < placed) {
      const int32_t first = run.shards[partition % run.shards.size()];
      return first != Run::kElsewhere &&
             (static_cast<uint32_t>(first) + piece % cut.pieces_per_partition()) % shards == shard;
    }
    partition -= placed;
  }
  return false;
}

uint64_t TensorInfo::own_bytes() const {
  uint64_t bytes = 0;
  for (const Run& run : runs) {
    const auto elsewhere = std::count(run.shards.begin(), run.shards.end(), Run::kElsewhere);
    bytes += (run.shards.size() - static_cast<size_t>(elsewhere)) * run.times * cut.partition_bytes;
  }
  const bool has_last = !runs.empty() && runs.back().shards.back() != Run::kElsewhere;
  return has_last ? bytes - (cut.partitions() * cut.partition_bytes - cut.tensor_bytes) : bytes;
}

uint64_t TensorInfo::lasting_bytes(uint64_t bytes) const {
  if (!codec) return bytes;
  // The sum of contributions, and the error that is left of it. What is sent is smaller.
  return bytes / size_of(dtype) * sizeof(float) * (codec->spec.feedback ? 2 : 1);
}

const char* invalid(const TensorInfo& tensor, unsigned shards) {
  if (const char* reason = invalid(tensor.cut)) return reason;
  if (tensor.cut.tensor_bytes % size_of(tensor.dtype) != 0) return "not a whole number of elements";
  if (tensor.codec && !is_float(tensor.dtype)) return "a codec for a type that is no floating point";
  if (tensor.name.size() > limits::kMaxNameBytes) return "its name is too long";
  uint64_t placed = 0;
  for (const TensorInfo::Run& run : tensor.runs) {
    if (run.shards.empty()) return "a run without places";
    placed += uint64_t{run.times} * run.shards.size();
    if (placed > tensor.cut.partitions()) break;
    for (const int32_t shard : run.shards) {
      if (shard < TensorInfo::Run::kElsewhere || shard >= static_cast<int64_t>(shards))
        return "a partition on a shard that does not exist";
    }
  }
  if (placed != tensor.cut.partitions()) return "not one place for each of its partitions";
  return nullptr;
}

void TensorTable::declare(TensorInfo tensor) {
  const auto made = std::make_shared<const TensorInfo>(std::move(tensor));
  const uint64_t coming_bytes = made->lasting_bytes(made->own_bytes());
  std::lock_guard lock(mutex_);
  const auto [it, is_new] = tensors_.try_emplace(made->id, Known{made, coming_bytes});
  if (is_new) {
    coming_bytes_ += coming_bytes;
  } else if (!(*it->second.tensor == *made)) {
    throw std::invalid_argument("tensor " + std::to_string(made->id) + " is " + it->second.tensor->name +
                                " with other properties");
  }
}

TensorTable::Tensor TensorTable::find(uint32_t id) const {
  std::lock_guard lock(mutex_);
  const auto it = tensors_.find(id);
  return it == tensors_.end() ? nullptr : it->second.tensor;
}

void TensorTable::forget(const std::vector<uint32_t>& ids) {
  std::lock_guard lock(mutex_);
  for (const uint32_t id : ids) {
    const auto it = tensors_.find(id);
    if (it == tensors_.end()) continue;
    coming_bytes_ -= it->second.coming_bytes;
    tensors_.erase(it);
  }
}

void TensorTable::clear() {
  std::lock_guard lock(mutex_);
  coming_bytes_ = 0;
  tensors_.clear();
}

void TensorTable::begun(const TensorInfo& tensor, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto it = tensors_.find(tensor.id);
  if (it == tensors_.end()) return;  // it was forgotten meanwhile
  const uint64_t taken = std::min(tensor.lasting_bytes(bytes), it->second.coming_bytes);
  it->second.coming_bytes -= taken;
  coming_bytes_ -= taken;
}

uint64_t TensorTable::coming_bytes() const {
  std::lock_guard lock(mutex_);
  return coming_bytes_;
}

}  // namespace byteps
