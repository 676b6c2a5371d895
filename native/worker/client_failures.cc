// How operations of a client end without a result: somebody is lost, they take too long, or it is over.
#include "worker/client.h"

namespace byteps {
namespace {

std::string describe(const Operation& op) {
  return op.tensor->name + " (key " + std::to_string(op.tensor->id) + ") round " + std::to_string(op.round);
}

}  // namespace

Failure Client::failure() const noexcept {
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return copy_of(failure_);
}

Failure Client::failure_of(uint32_t detail, std::string message) const {
  Failure failure{kind_in(detail), std::move(message)};
  if (failure.kind == FailureKind::lost) {
    const uint32_t rank = detail >> kErrorRankShift;
    failure.role = Role::worker;
    failure.rank = static_cast<int>(rank);
    if (rank < settings_.epoch.hosts.size()) failure.host = settings_.epoch.hosts[rank];
  }
  return failure;
}

void Client::fail(Failure failure) {
  std::vector<std::shared_ptr<Tensor>> tensors;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    failed_.store(true, std::memory_order_release);
    for (auto& [_, tensor] : tensors_) tensors.push_back(tensor);
  }
  for (auto& tensor : tensors) {
    auto op = tensor->poison(failure);
    if (!op) continue;
    op->fail(failure);
    if (tensor->group) tensor->group->give_up(*op);
  }
  if (!started_) return;
  for (auto& thread : threads_) thread->abandon_all();
}

void Client::fail_tensor(uint32_t id, const std::string& message, bool lack) {
  std::shared_ptr<Tensor> tensor;
  {
    std::lock_guard lock(mutex_);
    const auto it = tensors_.find(id);
    if (it == tensors_.end()) return;
    tensor = it->second;
  }
  const Failure failure{lack ? FailureKind::memory : FailureKind::conflict, message};
  if (auto op = tensor->poison(failure)) {
    op->fail(failure);
    abandon(op);
  }
}

void Client::forget(uint32_t id) {
  std::shared_ptr<Tensor> tensor;
  {
    std::lock_guard lock(mutex_);
    const auto it = tensors_.find(id);
    if (it == tensors_.end()) return;
    tensor = std::move(it->second);
    tensors_.erase(it);
  }
  for (auto& thread : threads_) thread->forget(tensor);
}

void Client::depart(uint16_t rank) {
  if (group_) group_->depart(rank);
}

void Client::release_routes(const Operation& op) {
  const auto front = op.tensor->front();
  if (front.get() != &op) return;
  for (auto& thread : threads_) thread->abandon(front);
}

void Client::abandon(const std::shared_ptr<Operation>& op) {
  for (auto& thread : threads_) thread->abandon(op);
  if (op->tensor->group) op->tensor->group->give_up(*op);
}

void Client::close() {
  if (threads_.empty()) return;
  fail({FailureKind::closed, "the job has been shut down"});
  for (auto& thread : threads_) thread->stop();
  codecs_.stop();
  // A thread that ended late may have handed work to one that had ended before it.
  for (auto& thread : threads_) thread->drain();
  if (group_) group_->close();
  threads_.clear();
  links_.clear();
}

void Client::give_up(Operation& op, const Failure& failure) {
  op.fail(failure);
  if (const auto running = op.tensor->poison(failure)) abandon(running);
}

void Client::stalled(Operation& op, const std::string& missing) {
  op.note_missing(missing);
  if (op.stall_told.exchange(true)) return;
  events_.log(kWarning, describe(op) + " waits for " + missing);
}

void Client::check_age(Operation& op, int64_t now, std::string missing, const std::string& detail) {
  const int64_t age = now - op.started_ns;
  if (const std::string told = op.missing(); !told.empty()) missing = told;
  if (settings_.op_timeout_s > 0 && age > seconds_to_ns(settings_.op_timeout_s) && !op.failing()) {
    const Failure failure{FailureKind::timeout,
                          describe(op) + ": no result after " + std::to_string(age / kNanosecondsPerSecond) +
                              " s, waiting for " + missing +
                              ". If that is normal for this job, raise BYTEPS_OP_TIMEOUT_S"};
    return give_up(op, failure);
  }
  // A server says after the same time who is missing; without a word from it, it is the server we wait for.
  const double patience_s = settings_.stall_warn_s + (op.tensor->group ? 0 : 2);
  if (settings_.stall_warn_s > 0 && age > seconds_to_ns(patience_s) && !op.stall_told.exchange(true)) {
    events_.log(kWarning, describe(op) + " waits for " + missing + detail);
  }
}

}  // namespace byteps
