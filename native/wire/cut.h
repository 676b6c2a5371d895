// How a tensor is cut into partitions and pieces: pure arithmetic, the same on workers and servers.
//
// A partition (BYTEPS_PARTITION_BYTES) is placed on one server. It travels in pieces (base/tuning.h says of
// which size), so that a piece stays in the caches between being received, added and sent, and an urgent
// tensor overtakes within a piece. Pieces are numbered through the whole tensor and never cross a partition's
// end; those of a partition go round the server's shards, beginning with the one that the scheduler chose. A
// partition that is compressed is one piece: it has one codec with one state.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/tuning.h"
#include "wire/limits.h"

namespace byteps {

struct Cut {
  uint64_t tensor_bytes = 0;
  uint64_t partition_bytes = 0;              // a multiple of 8, so that no element is cut
  bool whole_partitions = false;             // a partition is one piece
  uint32_t cut_bytes = tuning::kPieceBytes;  // else one has this many, the same on all members

  uint64_t piece_bytes() const { return whole_partitions ? partition_bytes : cut_bytes; }

  uint32_t partitions() const {
    return static_cast<uint32_t>((tensor_bytes + partition_bytes - 1) / partition_bytes);
  }
  uint32_t pieces_per_partition() const {
    return static_cast<uint32_t>((partition_bytes + piece_bytes() - 1) / piece_bytes());
  }
  uint32_t pieces() const {
    if (tensor_bytes == 0) return 0;
    const uint32_t full = partitions() - 1;
    const uint64_t last_bytes = tensor_bytes - uint64_t{full} * partition_bytes;
    return full * pieces_per_partition() +
           static_cast<uint32_t>((last_bytes + piece_bytes() - 1) / piece_bytes());
  }
  uint32_t partition_of(uint32_t piece) const { return piece / pieces_per_partition(); }
  uint64_t offset_of(uint32_t piece) const {
    return uint64_t{partition_of(piece)} * partition_bytes +
           uint64_t{piece % pieces_per_partition()} * piece_bytes();
  }
  uint32_t length_of(uint32_t piece) const {
    const uint64_t partition_end =
        std::min(tensor_bytes, (uint64_t{partition_of(piece)} + 1) * partition_bytes);
    return static_cast<uint32_t>(std::min<uint64_t>(piece_bytes(), partition_end - offset_of(piece)));
  }

  bool operator==(const Cut&) const = default;
};

// What is wrong with a cut that a peer sent, or nullptr.
inline const char* invalid(const Cut& cut) {
  if (cut.partition_bytes == 0 || cut.partition_bytes % 8 != 0)
    return "partition size is not a multiple of 8";
  if (cut.partition_bytes > limits::kMaxPartitionBytes) return "partition size is too large";
  if (cut.cut_bytes % 8 != 0 || cut.cut_bytes < limits::kMinPieceBytes ||
      cut.cut_bytes > limits::kMaxPartitionBytes)
    return "piece size is not a multiple of 8 from 4096 to 2^30";
  if (cut.tensor_bytes > limits::kMaxTensorBytes) return "tensor is too large";
  if (cut.tensor_bytes / std::min<uint64_t>(cut.partition_bytes, cut.piece_bytes()) >=
      limits::kMaxPieces / 2) {
    return "too many pieces: raise BYTEPS_PARTITION_BYTES";
  }
  return nullptr;
}

}  // namespace byteps
