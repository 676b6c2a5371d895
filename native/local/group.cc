#include "local/group.h"

#include <algorithm>
#include <stdexcept>

#include "base/thread.h"
#include "base/tuning.h"

namespace byteps {

LocalGroup::LocalGroup(GroupSettings settings, std::shared_ptr<Mapping> board, std::shared_ptr<Arena> arena,
                       GroupMemory memory)
    : settings_(std::move(settings)),
      board_(std::move(board)),
      arena_(std::move(arena)),
      memory_(std::move(memory)) {
  if (memory_.ranks() < 2 || memory_.ranks() > board::kMaxRanks || memory_.own() >= memory_.ranks() ||
      settings_.ranks.size() != memory_.ranks()) {
    throw std::invalid_argument("a local group needs 2 to 4096 ranks, and one of them is this one");
  }
  if (board_->bytes() < board::bytes_for(memory_.ranks()))
    throw std::invalid_argument("the board is too small");
}

void LocalGroup::attach(EventQueue& events, std::vector<std::string> worker_hosts) {
  events_ = &events;
  worker_hosts_ = std::move(worker_hosts);
  helper_ = start_thread("bps-local", [this] { help(); });
}

SlotView LocalGroup::slot_of(uint32_t tensor) const {
  if (tensor >= board::kMaxTensors) {
    throw std::invalid_argument("tensor " + std::to_string(tensor) + ": a machine has room for " +
                                std::to_string(board::kMaxTensors) +
                                " declarations; use the same names again");
  }
  return SlotView(board_->data(), memory_.ranks(), tensor);
}

EventCount& LocalGroup::bell(uint32_t rank) const {
  return reinterpret_cast<board::Bell*>(board_->data() + sizeof(board::Head))[rank].rung;
}

uint32_t LocalGroup::parts_of(const GroupOperation& op) const {
  const Cut& cut = op.shared.cut;
  if (settings_.has_parent) return cut.pieces();
  return static_cast<uint32_t>((cut.tensor_bytes + tuning::kClaimBytes - 1) / tuning::kClaimBytes);
}

std::string LocalGroup::name_of(uint32_t local) const {
  const uint16_t rank = settings_.ranks[local];
  return member_text(Role::worker, rank, host_of(rank));
}

std::string LocalGroup::host_of(uint16_t rank) const {
  return rank < worker_hosts_.size() ? worker_hosts_[rank] : "";
}

// `tensor`: what needed it, if that is to be said.
Failure LocalGroup::left(uint32_t local, const std::string& tensor) const noexcept {
  const uint16_t rank = settings_.ranks[local];
  return worded({FailureKind::lost, {}, Role::worker, rank}, [&](Failure& failure) {
    failure.message = (tensor.empty() ? "" : tensor + ": ") + left_text(name_of(local));
    failure.host = host_of(rank);
  });
}

void LocalGroup::depart(uint16_t rank) {
  const auto found = std::find(settings_.ranks.begin(), settings_.ranks.end(), rank);
  if (found == settings_.ranks.end()) return;  // of another machine: the servers tell
  const auto local = static_cast<uint32_t>(found - settings_.ranks.begin());
  std::vector<std::shared_ptr<GroupOperation>> active;
  {
    std::lock_guard lock(mutex_);
    if (departed_ < 0) departed_ = static_cast<int>(local);
    active = active_;
  }
  for (const auto& op : active) {
    if (!op->shared.slot.has_arrived(local, op->round)) fail_without(*op, local);
  }
}

void LocalGroup::fail_without(GroupOperation& op, uint32_t local) {
  op.fail(left(local, op.shared.name));
  give_up(op);
}

void LocalGroup::close() {
  if (!events_ || closed_.exchange(true)) return;
  ring(own());
  helper_.join();
  std::vector<std::shared_ptr<GroupOperation>> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(active_);
  }
  for (const auto& op : left) {
    op->fail({FailureKind::closed, "the job has been shut down"});
    while (!wait(*op, kDrainNs) && !op->given_up.load(std::memory_order_acquire)) {
    }
    op->end_turn();  // what is queued behind it fails, too
  }
}

}  // namespace byteps
