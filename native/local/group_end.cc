// How an operation ends: with its round, or because a rank gives up.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "local/group.h"
#include "wire/header.h"

namespace byteps {

void LocalGroup::want_bell(GroupOperation& op) {
  op.shared.slot.entry(own()).wants_bell.store(1, std::memory_order_seq_cst);
  poll(op);  // it may have ended before we asked
}

bool LocalGroup::poll(GroupOperation& op) {
  if (op.finished()) return true;
  if (!op.started.load(std::memory_order_acquire)) {
    const auto front = op.whose_turn();
    if (front && front.get() != &op) poll(*front);
    return op.finished();
  }
  const SlotView& slot = op.shared.slot;
  if (slot.over(op.round)) {
    settle(op);
  } else if (op.failing() || slot.closed()) {
    give_up(op);
  }
  return op.finished();
}

void LocalGroup::give_up(GroupOperation& op) {
  if (!op.started.load(std::memory_order_acquire)) return;  // its turn will come, and fail
  const SlotView& slot = op.shared.slot;
  if (!slot.over(op.round)) {
    if (!op.failing()) take_failure(op, slot.close_reason());
    Failure told = op.failure();
    if (told.kind == FailureKind::closed) told = left(own(), "");
    slot.close(own(), told);
    if (op.has_pieces_out()) op.recall_pieces();
    if (!slot.drained() || op.has_pieces_out()) return;
  }
  settle(op);
}

void LocalGroup::take_failure(GroupOperation& op, const board::Reason* reason) {
  if (!reason || reason->kind == FailureKind::none) {  // closed a moment ago: no reason yet
    const int closer = op.shared.slot.closer();
    const int rank = closer < 0 ? -1 : settings_.ranks[static_cast<size_t>(closer)];
    return op.fail(worded({FailureKind::lost, {}, Role::worker, rank},
                          [&](Failure& f) { f.message = op.shared.name + ": another rank gave up"; }));
  }
  op.fail(reason->failure());
}

void LocalGroup::settle(GroupOperation& op) {
  if (op.settling.exchange(true, std::memory_order_acq_rel)) return;
  GroupTensor& tensor = op.shared;
  if (!op.failing()) {
    if (tensor.slot.failed(op.round)) {
      take_failure(op, &tensor.slot.round_reason());
    } else if (op.staged) {
      const bool is_root = (op.flags & kFlagBroadcast) && settings_.ranks[own()] == op.root;
      if (!is_root) std::memcpy(op.dst, op.staged, tensor.cut.tensor_bytes);
    }
  }
  std::shared_ptr<GroupOperation> keep;
  {
    std::lock_guard lock(mutex_);
    if (op.active_index < active_.size() && active_[op.active_index].get() == &op) {
      keep = active_[op.active_index];
      active_[op.active_index] = active_.back();
      active_[op.active_index]->active_index = op.active_index;
      active_.pop_back();
    }
  }
  if (!closed_.load(std::memory_order_acquire)) {
    op.count();
    if (!op.failing()) {
      op.show("pull", op.dst);
    }
  }
  op.finish();
  if (op.failing()) tensor.slot.changed().notify();  // whoever waits for it may sleep there
  op.end_turn();
}

// Whether there is something to do or to take without sleeping first. With servers above it takes a network.
bool LocalGroup::comes_soon(const GroupOperation& op) {
  if (settings_.spin_ns == 0 || settings_.has_parent || op.failing() || !spin_score_.worth()) return false;
  const SlotView& slot = op.shared.slot;
  const uint32_t parts = parts_of(op);
  const bool paid = slot.spin(settings_.spin_ns, [&] {
    return slot.over(op.round) || slot.closed() || slot.claimable(op.round, parts);
  });
  spin_score_.spun(paid);
  return paid;
}

bool LocalGroup::wait(GroupOperation& op, int64_t timeout_ns) {
  const int64_t deadline = machine_now_ns() + timeout_ns;
  while (!poll(op)) {
    if (op.given_up.load(std::memory_order_acquire)) return false;
    const int64_t now = machine_now_ns();
    if (now >= deadline) {
      check_age(op);
      return op.finished();
    }
    if (op.settling.load(std::memory_order_acquire)) return op.wait_finished(deadline - now);
    if (!op.started.load(std::memory_order_acquire)) {
      const auto front = op.whose_turn();
      if (front && front.get() != &op) {
        wait(*front, deadline - now);
        if (front->given_up.load(std::memory_order_acquire)) {  // then nothing ever follows it
          op.fail(front->failure());
          op.given_up.store(true, std::memory_order_release);
        }
      }
      continue;
    }
    const SlotView& slot = op.shared.slot;
    if (!settings_.has_parent && slot.claimable(op.round, parts_of(op))) {
      work_on(op);
      continue;
    }
    const int64_t drain_until = op.failing() ? op.failed_ns() + kDrainNs : deadline;
    if (now >= drain_until) {
      op.given_up.store(true, std::memory_order_release);
      return false;
    }
    if (comes_soon(op)) continue;
    const uint32_t prepared = slot.changed().prepare();
    const bool news =
        slot.over(op.round) ||
        (op.failing() || slot.closed() ? slot.drained() && !op.has_pieces_out()
                                       : !settings_.has_parent && slot.claimable(op.round, parts_of(op)));
    if (news) {
      slot.changed().cancel();
    } else {
      slot.changed().sleep(prepared, std::min(deadline, drain_until) - now);
    }
  }
  return true;
}

std::string LocalGroup::missing(const GroupOperation& op) const {
  std::string text;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (!op.shared.slot.has_arrived(rank, op.round)) text += (text.empty() ? "" : ", ") + name_of(rank);
  }
  return text;
}

void LocalGroup::check_age(GroupOperation& op) {
  if (!op.started.load(std::memory_order_acquire)) return;
  const std::string who = missing(op);
  // With servers above, the threads that talk to them know better whom we wait for.
  if (who.empty() && settings_.has_parent) return;
  op.check_age(who.empty() ? "the sums of this machine" : who);
}

}  // namespace byteps
