// The tensors that the scheduler has placed on this server, for all its shards.
//
// Only the scheduler's word counts: it has compared what all workers declared, and it tells the servers
// before it answers the workers. So whatever a worker pushes is here already, or is none of our business.
// Thread-safe; a shard asks when it makes a key, and the key keeps the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compress/declared.h"
#include "reduce/dtype.h"
#include "wire/cut.h"

namespace byteps {

struct TensorInfo {
  // Where partitions lie that follow one another. Places repeat, and are said once: a terabyte has a quarter
  // of a million partitions (see byteps.tensor.runs).
  struct Run {
    static constexpr int32_t kElsewhere = -1;
    uint32_t times;
    std::vector<int32_t> shards;  // of the first piece of each partition; the others go round the shards
    bool operator==(const Run&) const = default;
  };

  uint32_t id = 0;
  std::string name{};
  DType dtype = DType::f32;
  Cut cut{};
  std::vector<Run> runs{};
  std::optional<compress::DeclaredCodec> codec{};
  bool traced = false;  // the user wants to see its values

  bool operator==(const TensorInfo&) const = default;
  // Whether this piece belongs to that one of `shards` shards here.
  bool is_on(uint32_t piece, unsigned shard, unsigned shards) const;
  // How much of it lives here.
  uint64_t own_bytes() const;
  // What the server keeps of so many bytes from round to round: results, and the state of codecs.
  uint64_t lasting_bytes(uint64_t bytes) const;
};

// What is wrong with it, or nullptr: it comes from another process.
const char* invalid(const TensorInfo& tensor, unsigned shards);

class TensorTable {
 public:
  using Tensor = std::shared_ptr<const TensorInfo>;

  // Throws std::invalid_argument if the number is taken by something else. Once more the same is nothing.
  void declare(TensorInfo tensor);
  Tensor find(uint32_t id) const;  // null: not here
  void forget(const std::vector<uint32_t>& ids);
  void clear();
  // A key of it takes its memory now.
  void begun(const TensorInfo& tensor, uint64_t bytes);
  // What will be kept of all of them, and has not been taken yet.
  uint64_t coming_bytes() const;

 private:
  struct Known {
    Tensor tensor;
    uint64_t coming_bytes;
  };

  mutable std::mutex mutex_;  // of what follows
  std::unordered_map<uint32_t, Known> tensors_;
  uint64_t coming_bytes_ = 0;
};

}  // namespace byteps
