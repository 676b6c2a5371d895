// A rank contributes to a round, and whoever is there sums it.
#include <algorithm>
#include <cstring>

#include "base/tuning.h"
#include "local/group.h"
#include "local/part_sum.h"
#include "observe/ring.h"
#include "wire/header.h"

namespace byteps {

void LocalGroup::contribute(const std::shared_ptr<GroupOperation>& op) {
  int departed;
  try {
    enter(*op);
    std::lock_guard lock(mutex_);
    active_.push_back(op);
    op->active_index = active_.size() - 1;
    departed = departed_;
  } catch (const std::bad_alloc& lack) {  // the ranks of this machine would wait for us
    op->lack_memory(lack.what());
    op->shared.slot.close(own(), op->failure());
    op->finish();
    return op->end_turn();
  }
  op->started.store(true, std::memory_order_release);
  const GroupTensor& tensor = op->shared;
  op->show("push", op->src);
  if (departed >= 0 && !tensor.slot.has_arrived(static_cast<uint32_t>(departed), op->round)) {
    return fail_without(*op, static_cast<uint32_t>(departed));
  }
  if (!tensor.slot.arrive(own())) return;
  record({.stage = Stage::arrived,
          .peer = settings_.ranks[own()],
          .round = op->round,
          .key = whole_key(tensor.id),
          .at_ns = machine_now_ns(),
          .bytes = saturated(tensor.cut.tensor_bytes)});
  open(op);
}

// Writes on the board where this rank's contribution lies, and where its result is to go.
void LocalGroup::enter(GroupOperation& op) {
  const GroupTensor& tensor = op.shared;
  const uint64_t bytes = tensor.cut.tensor_bytes;
  const bool broadcast = (op.flags & kFlagBroadcast) != 0;
  board::Entry& entry = tensor.slot.entry(own());
  entry.src = memory_.locate(op.src);
  entry.dst = memory_.locate(op.dst);
  const bool plain = entry.src.kind == board::Location::plain || entry.dst.kind == board::Location::plain;
  if (plain && (!settings_.peers_readable || bytes <= tuning::kStagedBytes)) {
    const bool has_values = !broadcast || settings_.ranks[own()] == op.root;
    // The contribution may lie in the destination until the result overwrites it, if that is in the arena.
    std::byte* shared = op.dst;
    if (entry.dst.kind == board::Location::plain) shared = op.staged = op.shared.staging(arena_);
    if (has_values) std::memcpy(shared, op.src, bytes);
    entry.src = entry.dst = memory_.locate(shared);
  }
  const auto root = std::find(settings_.ranks.begin(), settings_.ranks.end(), op.root);
  entry.flags = op.flags;
  entry.root = !broadcast                      ? 0
               : root == settings_.ranks.end() ? board::Entry::kElsewhere
                                               : static_cast<uint16_t>(root - settings_.ranks.begin());
  entry.wants_bell.store(0, std::memory_order_relaxed);
}

bool LocalGroup::same_terms(const GroupOperation& op) {
  const SlotView& slot = op.shared.slot;
  auto text = [&](uint32_t rank) {
    const board::Entry& e = slot.entry(rank);
    if (e.flags & kFlagBroadcast) {
      return e.root == board::Entry::kElsewhere
                 ? std::string("broadcast from another machine")
                 : "broadcast from rank " + std::to_string(settings_.ranks[e.root]);
    }
    return std::string(e.flags & kFlagAverage ? "push_pull with average" : "push_pull with sum");
  };
  const board::Entry& first = slot.entry(0);
  for (uint32_t rank = 1; rank < size(); ++rank) {
    const board::Entry& e = slot.entry(rank);
    if (e.flags == first.flags && e.root == first.root) continue;
    slot.fail(op.round, worded({FailureKind::conflict}, [&](Failure& failure) {
                failure.message = op.shared.name + ": ranks call different operations: " + name_of(rank) +
                                  " a " + text(rank) + ", " + name_of(0) + " a " + text(0);
              }));
    return false;
  }
  return true;
}

void LocalGroup::open(const std::shared_ptr<GroupOperation>& op) {
  const SlotView& slot = op->shared.slot;
  // With servers above a disagreement does not end the round here: this machine sends a refusal instead of
  // its sum, so that the other machines fail, too.
  if (!same_terms(*op) && !settings_.has_parent) {
    slot.complete(op->round, [this](uint32_t rank) { ring(rank); });
    return;
  }
  if (!slot.open(op->round)) return;  // somebody gave up: all notice that the slot is closed
  if (settings_.has_parent) {
    for (uint32_t rank = 0; rank < size(); ++rank) ring(rank);
  } else if (op->shared.cut.tensor_bytes <= tuning::kInlineBytes) {
    work_on(*op);
  } else if (!slot.notify()) {
    // Nobody waits for it: the helpers of all ranks share the work, beside what their ranks are computing.
    for (uint32_t rank = 0; rank < size(); ++rank) ring(rank);
  }
}

void LocalGroup::work_on(GroupOperation& op) {
  const GroupTensor& tensor = op.shared;
  const uint32_t parts = parts_of(op);
  const PartSum sum(memory_, tensor.slot, tensor.dtype, op.flags & kFlagAverage ? settings_.job_ranks : 1);
  for (int64_t part; (part = tensor.slot.claim(op.round, parts)) >= 0;) {
    const uint64_t offset = static_cast<uint64_t>(part) * tuning::kClaimBytes;
    const size_t bytes = std::min(tuning::kClaimBytes, tensor.cut.tensor_bytes - offset);
    if (sum.reduce({offset, bytes})) {
      finish_part(op, parts);
    } else {
      drop_part(op, sum.gone());
    }
  }
}

void LocalGroup::finish_part(GroupOperation& op, uint32_t parts) {
  if (op.shared.slot.finish(parts)) {
    record({.stage = Stage::summed,
            .round = op.round,
            .key = whole_key(op.shared.id),
            .at_ns = machine_now_ns()});
    op.shared.slot.complete(op.round, [this](uint32_t rank) { ring(rank); });
  }
}

void LocalGroup::drop_part(const GroupOperation& op, uint32_t gone) {
  op.shared.slot.drop();
  peer_is_gone(op, gone);
}

// A process that dies takes its memory with it at once. Who is lost is for the scheduler to say, to everybody
// alike: it is told, and the operation waits for its word.
void LocalGroup::peer_is_gone(const GroupOperation& op, uint32_t local) {
  events_->failed(FailureKind::lost, Role::worker, settings_.ranks[local],
                  op.shared.name + ": its memory cannot be reached");
}

}  // namespace byteps
