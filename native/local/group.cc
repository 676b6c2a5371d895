#include "local/group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <stdexcept>

#include "base/clock.h"
#include "base/thread.h"
#include "local/part_sum.h"
#include "wire/header.h"
#include "worker/client.h"

namespace byteps {
namespace {

// Up to this size the rank that comes last does all the work at once: waking a helper would take longer.
constexpr uint64_t kInlineBytes = 128 * 1024;
// A tensor outside the arena of up to this size goes through the arena even where ranks can read each other:
// copying it twice inside the caches is faster than having the kernel look up its pages for a single copy
// (1 MB with two ranks: 200 us instead of 260). Larger ones are copied once.
constexpr uint64_t kStagedBytes = 1024 * 1024;
// What is claimed at a time: fits into the caches of a core, twice.
constexpr uint64_t kPartBytes = 128 * 1024;
static_assert(kPartBytes <= Part::kMaxBytes);
// How long a failed operation waits for ranks that are just writing into its memory. After that it fails all
// the same, and its memory is kept: a rank that died in the middle would be waited for in vain.
constexpr int64_t kDrainNs = kNanosecondsPerSecond;
constexpr int64_t kForeverNs = 3600 * kNanosecondsPerSecond;

// A piece is one part, unless it is a whole partition.
std::vector<Part> parts_of_piece(const Cut& cut, uint32_t piece) {
  const uint64_t begin = cut.offset_of(piece), end = begin + cut.length_of(piece);
  std::vector<Part> parts;
  for (uint64_t at = begin; at < end; at += Part::kMaxBytes) {
    parts.push_back({at, std::min<uint64_t>(Part::kMaxBytes, end - at)});
  }
  return parts;
}

}  // namespace

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

void LocalGroup::attach(Client& client) {
  client_ = &client;
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

uint32_t LocalGroup::parts_of(const Operation& op) const {
  const Cut& cut = op.tensor->cut;
  if (settings_.has_parent) return cut.pieces();
  return static_cast<uint32_t>((cut.tensor_bytes + kPartBytes - 1) / kPartBytes);
}

std::string LocalGroup::name_of(uint32_t local) const {
  const uint16_t rank = settings_.ranks[local];
  return member_text(Role::worker, rank, host_of(rank));
}

std::string LocalGroup::host_of(uint16_t rank) const {
  const auto& hosts = client_->settings().worker_hosts;
  return rank < hosts.size() ? hosts[rank] : "";
}

// `tensor`: what needed it, if that is to be said.
Failure LocalGroup::left(uint32_t local, const std::string& tensor) const noexcept {
  const uint16_t rank = settings_.ranks[local];
  return worded({FailureKind::lost, {}, Role::worker, rank}, [&](Failure& failure) {
    failure.message = (tensor.empty() ? "" : tensor + ": ") + left_text(name_of(local));
    failure.host = host_of(rank);
  });
}

// ---- contributing
// ------------------------------------------------------------------------------------------

void LocalGroup::contribute(const std::shared_ptr<Operation>& op) {
  int departed;
  try {
    enter(*op);
    std::lock_guard lock(mutex_);
    active_.push_back(op);
    op->active_index = active_.size() - 1;
    departed = departed_;
  } catch (const std::bad_alloc& lack) {  // the ranks of this machine would wait for us
    op->tensor->lack_memory(op, lack.what());
    op->tensor->slot.close(own(), op->failure());
    op->finish();
    return op->tensor->finished(*op);
  }
  op->started.store(true, std::memory_order_release);
  const Tensor& tensor = *op->tensor;
  client_->sample(tensor, "push", op->round, 0, op->src, tensor.cut.tensor_bytes, tensor.dtype);
  if (departed >= 0 && !tensor.slot.has_arrived(static_cast<uint32_t>(departed), op->round)) {
    return fail_without(*op, static_cast<uint32_t>(departed));
  }
  if (tensor.slot.arrive(own())) open(op);
}

// Writes on the board where this rank's contribution lies, and where its result is to go.
void LocalGroup::enter(Operation& op) {
  const Tensor& tensor = *op.tensor;
  const uint64_t bytes = tensor.cut.tensor_bytes;
  const bool broadcast = (op.flags & kFlagBroadcast) != 0;
  board::Entry& entry = tensor.slot.entry(own());
  entry.src = memory_.locate(op.src);
  entry.dst = memory_.locate(op.dst);
  const bool plain = entry.src.kind == board::Location::plain || entry.dst.kind == board::Location::plain;
  if (plain && (!settings_.peers_readable || bytes <= kStagedBytes)) {
    const bool has_values = !broadcast || settings_.ranks[own()] == op.root;
    std::byte* shared = op.dst;  // a destination in the arena is free for it until the result lands there
    if (entry.dst.kind == board::Location::plain) shared = op.staged = op.tensor->staging(arena_);
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

bool LocalGroup::same_terms(const Operation& op) {
  const SlotView& slot = op.tensor->slot;
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
    slot.fail(op.round, {FailureKind::conflict,
                         op.tensor->name + ": ranks call different operations: " + name_of(rank) + " a " +
                             text(rank) + ", " + name_of(0) + " a " + text(0)});
    return false;
  }
  return true;
}

void LocalGroup::open(const std::shared_ptr<Operation>& op) {
  const SlotView& slot = op->tensor->slot;
  if (!same_terms(*op) && !settings_.has_parent) {  // other machines must hear of it: the round goes its way
    slot.complete(op->round, [this](uint32_t rank) { ring(rank); });
    return;
  }
  if (!slot.open(op->round)) return;  // somebody gave up: all notice that the slot is closed
  if (settings_.has_parent) {
    for (uint32_t rank = 0; rank < size(); ++rank) ring(rank);
  } else if (op->tensor->cut.tensor_bytes <= kInlineBytes) {
    work_on(*op);
  } else if (!slot.changed().notify()) {
    // Nobody waits for it: the helpers of all ranks share the work, beside what their ranks are computing.
    for (uint32_t rank = 0; rank < size(); ++rank) ring(rank);
  }
}

void LocalGroup::work_on(Operation& op) {
  const Tensor& tensor = *op.tensor;
  const uint32_t parts = parts_of(op);
  const PartSum sum(memory_, tensor.slot, tensor.dtype, op.flags & kFlagAverage ? settings_.job_ranks : 1);
  for (int64_t part; (part = tensor.slot.claim(op.round, parts)) >= 0;) {
    const uint64_t offset = static_cast<uint64_t>(part) * kPartBytes;
    const size_t bytes = std::min(kPartBytes, tensor.cut.tensor_bytes - offset);
    if (sum.reduce({offset, bytes})) {
      finish_part(op, parts);
    } else {
      drop_part(op, sum.gone());
    }
  }
}

// A process that dies takes its memory with it at once. Who is lost is for the scheduler to say, to everybody
// alike: it is told, and the operation waits for its word.
void LocalGroup::peer_is_gone(const Operation& op, uint32_t local) {
  client_->events().failed(FailureKind::lost, Role::worker, settings_.ranks[local],
                           op.tensor->name + ": its memory cannot be reached");
}

void LocalGroup::drop_part(const Operation& op, uint32_t gone) {
  op.tensor->slot.drop();
  peer_is_gone(op, gone);
}

// ---- pieces that go to servers
// -----------------------------------------------------------------------------

std::string LocalGroup::disagreement(const Operation& op) const {
  const SlotView& slot = op.tensor->slot;
  if (!slot.failed(op.round)) return {};
  return std::string(slot.round_reason().message());
}

bool LocalGroup::gather(Operation& op, uint32_t piece) {
  const Tensor& tensor = *op.tensor;
  const PartSum sum(memory_, tensor.slot, tensor.dtype, 1);  // the servers divide
  for (const Part& part : parts_of_piece(tensor.cut, piece)) {
    if (sum.gather(part)) continue;
    peer_is_gone(op, sum.gone());
    return false;
  }
  // Asked afterwards: a rank that gave up may have let go of its memory while we were reading it.
  return !tensor.slot.closed() && !op.failing();
}

bool LocalGroup::sums_wide(const Operation& op) {
  return is_half(op.tensor->dtype) && !(op.flags & kFlagBroadcast);
}

bool LocalGroup::gather_wide(Operation& op, uint32_t piece, float* sum) {
  const Tensor& tensor = *op.tensor;
  const PartSum part_sum(memory_, tensor.slot, tensor.dtype, 1);
  for (const Part& part : parts_of_piece(tensor.cut, piece)) {
    const uint64_t first = (part.offset - tensor.cut.offset_of(piece)) / size_of(tensor.dtype);
    if (part_sum.gather_wide(part, sum + first)) continue;
    peer_is_gone(op, part_sum.gone());
    return false;
  }
  return !tensor.slot.closed() && !op.failing();
}

void LocalGroup::publish(Operation& op, uint32_t piece) {
  const Tensor& tensor = *op.tensor;
  const uint32_t parts = parts_of(op);
  if (tensor.slot.claim(op.round, parts) < 0) return;  // somebody gave up
  const PartSum sum(memory_, tensor.slot, tensor.dtype, 1);
  if (sum.publish({tensor.cut.offset_of(piece), tensor.cut.length_of(piece)})) {
    finish_part(op, parts);
  } else {
    drop_part(op, sum.gone());
  }
}

void LocalGroup::publish_failure(Operation& op, const Failure& failure) {
  const uint32_t parts = parts_of(op);
  if (op.tensor->slot.claim(op.round, parts) < 0) return;
  op.tensor->slot.fail(op.round, failure);
  finish_part(op, parts);
}

void LocalGroup::finish_part(Operation& op, uint32_t parts) {
  if (op.tensor->slot.finish(parts)) {
    op.tensor->slot.complete(op.round, [this](uint32_t rank) { ring(rank); });
  }
}

// ---- noticing the end
// --------------------------------------------------------------------------------------

void LocalGroup::want_bell(Operation& op) {
  op.tensor->slot.entry(own()).wants_bell.store(1, std::memory_order_seq_cst);
  poll(op);  // it may have ended before we asked
}

bool LocalGroup::poll(Operation& op) {
  if (op.finished()) return true;
  if (!op.started.load(std::memory_order_acquire)) {
    const auto front = op.tensor->front();
    if (front && front.get() != &op) poll(*front);
    return op.finished();
  }
  const SlotView& slot = op.tensor->slot;
  if (slot.over(op.round)) {
    settle(op);
  } else if (op.failing() || slot.closed()) {
    give_up(op);
  }
  return op.finished();
}

void LocalGroup::give_up(Operation& op) {
  if (!op.started.load(std::memory_order_acquire)) return;  // its turn will come, and fail
  const SlotView& slot = op.tensor->slot;
  if (!slot.over(op.round)) {
    if (!op.failing()) take_failure(op, slot.close_reason());
    Failure told = op.failure();
    if (told.kind == FailureKind::closed) told = left(own(), "");
    slot.close(own(), told);
    if (op.routes_left() > 0) client_->release_routes(op);
    if (!slot.drained() || op.routes_left() > 0) return;
  }
  settle(op);
}

void LocalGroup::take_failure(Operation& op, const board::Reason* reason) {
  if (!reason) {  // closed a moment ago: no reason yet
    const int closer = op.tensor->slot.closer();
    const int rank = closer < 0 ? -1 : settings_.ranks[static_cast<size_t>(closer)];
    return op.fail(worded({FailureKind::lost, {}, Role::worker, rank},
                          [&](Failure& f) { f.message = op.tensor->name + ": another rank gave up"; }));
  }
  op.fail(reason->failure());
}

void LocalGroup::settle(Operation& op) {
  if (op.settling.exchange(true, std::memory_order_acq_rel)) return;
  Tensor& tensor = *op.tensor;
  if (!op.failing()) {
    if (tensor.slot.failed(op.round)) {
      take_failure(op, &tensor.slot.round_reason());
    } else if (op.staged) {
      const bool is_root = (op.flags & kFlagBroadcast) && settings_.ranks[own()] == op.root;
      if (!is_root) std::memcpy(op.dst, op.staged, tensor.cut.tensor_bytes);
    }
  }
  std::shared_ptr<Operation> keep;
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
    client_->count_local(op);
    if (!op.failing()) {
      client_->sample(tensor, "pull", op.round, 0, op.dst, tensor.cut.tensor_bytes, tensor.dtype);
    }
  }
  op.finish();
  if (op.failing()) tensor.slot.changed().notify();  // whoever waits for it may sleep there
  tensor.finished(op);
}

bool LocalGroup::wait(Operation& op, int64_t timeout_ns) {
  const int64_t deadline = now_ns() + timeout_ns;
  while (!poll(op)) {
    if (op.given_up.load(std::memory_order_acquire)) return false;
    const int64_t now = now_ns();
    if (now >= deadline) {
      check_age(op);
      return op.finished();
    }
    if (op.settling.load(std::memory_order_acquire)) return op.wait_finished(deadline - now);
    if (!op.started.load(std::memory_order_acquire)) {
      const auto front = op.tensor->front();
      if (front && front.get() != &op) {
        wait(*front, deadline - now);
        if (front->given_up.load(std::memory_order_acquire)) {  // then nothing ever follows it
          op.fail(front->failure());
          op.given_up.store(true, std::memory_order_release);
        }
      }
      continue;
    }
    const SlotView& slot = op.tensor->slot;
    if (!settings_.has_parent && slot.claimable(op.round, parts_of(op))) {
      work_on(op);
      continue;
    }
    const int64_t drain_until = op.failing() ? op.failed_ns() + kDrainNs : deadline;
    if (now >= drain_until) {
      op.given_up.store(true, std::memory_order_release);
      return false;
    }
    const uint32_t prepared = slot.changed().prepare();
    const bool news =
        slot.over(op.round) ||
        (op.failing() || slot.closed() ? slot.drained() && op.routes_left() == 0
                                       : !settings_.has_parent && slot.claimable(op.round, parts_of(op)));
    if (news) {
      slot.changed().cancel();
    } else {
      slot.changed().sleep(prepared, std::min(deadline, drain_until) - now);
    }
  }
  return true;
}

std::string LocalGroup::missing(const Operation& op) const {
  std::string text;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (!op.tensor->slot.has_arrived(rank, op.round)) text += (text.empty() ? "" : ", ") + name_of(rank);
  }
  return text;
}

void LocalGroup::check_age(Operation& op) {
  if (!op.started.load(std::memory_order_acquire)) return;
  const std::string who = missing(op);
  // With servers above, the threads that talk to them know better whom we wait for.
  if (who.empty() && settings_.has_parent) return;
  client_->check_age(op, now_ns(), who.empty() ? "the sums of this machine" : who);
}

// ---- the helper thread
// -------------------------------------------------------------------------------------

void LocalGroup::help() {
  while (!closed_.load(std::memory_order_acquire)) {
    try {
      help_once();
    } catch (const std::bad_alloc& lack) {  // whoever waits for an operation helps it along, too
      client_->events().log(kError, lack.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

void LocalGroup::help_once() {
  if (look_around()) return;
  const uint32_t prepared = bell(own()).prepare();
  if (closed_.load(std::memory_order_acquire) || look_around()) {
    bell(own()).cancel();
  } else {
    bell(own()).sleep(prepared, kForeverNs);
  }
}

bool LocalGroup::look_around() {
  std::vector<std::shared_ptr<Operation>> active;
  {
    std::lock_guard lock(mutex_);
    active = active_;
  }
  std::stable_sort(active.begin(), active.end(),
                   [](const auto& a, const auto& b) { return a->priority > b->priority; });
  bool did = false;
  for (const auto& op : active) {
    const SlotView& slot = op->tensor->slot;
    if (settings_.has_parent) {
      if (slot.is_open(op->round) && !op->posted.exchange(true)) {
        op->tensor->post_routes(op);
        did = true;
      }
    } else if (slot.claimable(op->round, parts_of(*op))) {
      work_on(*op);
      did = true;
    }
    if (slot.over(op->round) && slot.entry(own()).wants_bell.load(std::memory_order_relaxed))
      did |= poll(*op);
  }
  return did;
}

void LocalGroup::depart(uint16_t rank) {
  const auto found = std::find(settings_.ranks.begin(), settings_.ranks.end(), rank);
  if (found == settings_.ranks.end()) return;  // of another machine: the servers tell
  const auto local = static_cast<uint32_t>(found - settings_.ranks.begin());
  std::vector<std::shared_ptr<Operation>> active;
  {
    std::lock_guard lock(mutex_);
    if (departed_ < 0) departed_ = static_cast<int>(local);
    active = active_;
  }
  for (const auto& op : active) {
    if (!op->tensor->slot.has_arrived(local, op->round)) fail_without(*op, local);
  }
}

void LocalGroup::fail_without(Operation& op, uint32_t local) {
  op.fail(left(local, op.tensor->name));
  give_up(op);
}

void LocalGroup::close() {
  if (!client_ || closed_.exchange(true)) return;
  ring(own());
  helper_.join();
  std::vector<std::shared_ptr<Operation>> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(active_);
  }
  for (const auto& op : left) {
    op->fail({FailureKind::closed, "the job has been shut down"});
    while (!wait(*op, kDrainNs) && !op->given_up.load(std::memory_order_acquire)) {
    }
    op->tensor->finished(*op);  // what is queued behind it fails, too
  }
}

}  // namespace byteps
