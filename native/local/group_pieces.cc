// With servers above: the pieces that this rank pushes for its machine, and their results.
#include <algorithm>

#include "base/tuning.h"
#include "local/group.h"
#include "local/part_sum.h"
#include "wire/header.h"

namespace byteps {
namespace {

// A piece is one part, unless it is a whole partition.
std::vector<Part> parts_of_piece(const Cut& cut, uint32_t piece) {
  const uint64_t begin = cut.offset_of(piece), end = begin + cut.length_of(piece);
  std::vector<Part> parts;
  for (uint64_t at = begin; at < end; at += tuning::kPartBytes) {
    parts.push_back({at, std::min<uint64_t>(tuning::kPartBytes, end - at)});
  }
  return parts;
}

}  // namespace

std::string LocalGroup::disagreement(const GroupOperation& op) const {
  const SlotView& slot = op.shared.slot;
  if (!slot.failed(op.round)) return {};
  return std::string(slot.round_reason().message());
}

bool LocalGroup::gather(GroupOperation& op, uint32_t piece) {
  const GroupTensor& tensor = op.shared;
  const PartSum sum(memory_, tensor.slot, tensor.dtype, 1);  // the servers divide
  for (const Part& part : parts_of_piece(tensor.cut, piece)) {
    if (sum.gather(part)) continue;
    peer_is_gone(op, sum.gone());
    return false;
  }
  // Asked afterwards: a rank that gave up may have let go of its memory while we were reading it.
  return !tensor.slot.closed() && !op.failing();
}

bool LocalGroup::sums_wide(const GroupOperation& op) {
  return is_half(op.shared.dtype) && !(op.flags & kFlagBroadcast);
}

bool LocalGroup::gather_wide(GroupOperation& op, uint32_t piece, float* sum) {
  const GroupTensor& tensor = op.shared;
  const PartSum part_sum(memory_, tensor.slot, tensor.dtype, 1);
  for (const Part& part : parts_of_piece(tensor.cut, piece)) {
    const uint64_t first = (part.offset - tensor.cut.offset_of(piece)) / size_of(tensor.dtype);
    if (part_sum.gather_wide(part, sum + first)) continue;
    peer_is_gone(op, part_sum.gone());
    return false;
  }
  return !tensor.slot.closed() && !op.failing();
}

void LocalGroup::publish(GroupOperation& op, uint32_t piece) {
  const GroupTensor& tensor = op.shared;
  const uint32_t parts = parts_of(op);
  if (tensor.slot.claim(op.round, parts) < 0) return;  // somebody gave up
  const PartSum sum(memory_, tensor.slot, tensor.dtype, 1);
  if (sum.publish({tensor.cut.offset_of(piece), tensor.cut.length_of(piece)})) {
    finish_part(op, parts);
  } else {
    drop_part(op, sum.gone());
  }
}

void LocalGroup::publish_failure(GroupOperation& op, const Failure& failure) {
  const uint32_t parts = parts_of(op);
  if (op.shared.slot.claim(op.round, parts) < 0) return;
  op.shared.slot.fail(op.round, failure);
  finish_part(op, parts);
}

}  // namespace byteps
