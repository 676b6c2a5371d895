#include "worker/tensor.h"

#include "local/group.h"
#include "observe/ring.h"
#include "wire/header.h"
#include "worker/client.h"

namespace byteps {

const std::byte* Route::pushed_memory() const { return tensor->group ? op->landing() : op->src; }

std::string Route::why_refused() const {
  if (!refusal.empty()) return refusal;
  return tensor->group ? tensor->group->disagreement(*op) : std::string();
}

void Tensor::submit(std::shared_ptr<Operation> op) {
  std::shared_ptr<Operation> before;
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(op);
    if (queue_.size() > 1) before = queue_.front();
  }
  if (!before) return start(op);
  if (group) group->want_bell(*before);  // finished() starts ours; somebody must notice that it is time
}

void Tensor::start(const std::shared_ptr<Operation>& op) {
  Failure failure = client.failure();
  if (!failure) {
    std::lock_guard lock(mutex_);
    failure = copy_of(poison_);
    if (!failure) {
      op->round = next_round_++;
      if (codec && !(op->flags & kFlagBroadcast)) op->coding = codec->begin(op->round, op->lr);
    }
  }
  record({.stage = Stage::ready,
          .round = op->round,
          .key = whole_key(id),
          .at_ns = op->started_ns,
          .bytes = saturated(cut.tensor_bytes)});
  if (failure) op->fail(std::move(failure));
  if ((routes.empty() && !group) || op->failing()) {
    op->finish();
    finished(*op);
    return;
  }
  if (group) return group->contribute(op);
  post_routes(op);
}

// Never fails itself: where others cannot be told, they see that it is failing when they come to it.
void Tensor::lack_memory(const std::shared_ptr<Operation>& op, const char* why) noexcept {
  try {
    client.give_up(*op, client.lack(name, why));
  } catch (const std::bad_alloc&) {  // give_up() begins with the operation itself
  }
}

uint32_t Tensor::steps() {
  std::lock_guard lock(mutex_);
  return codec ? codec->step(next_round_) : 0;
}

void Tensor::set_steps(uint32_t steps) {
  std::lock_guard lock(mutex_);
  if (codec) codec->set_step(steps, next_round_);
}

void Tensor::post_routes(const std::shared_ptr<Operation>& op) {
  op->expect_routes(static_cast<uint32_t>(routes.size()));
  for (size_t i = 0; i < routes.size(); ++i) {
    try {
      client.post(*routes[i], op);
    } catch (const std::bad_alloc& lack) {  // those that are posted come back, the others never go
      lack_memory(op, lack.what());
      bool last = false;
      for (; i < routes.size(); ++i) last = op->release_route();
      if (!last) return;
      op->finish();
      finished(*op);
    }
  }
}

void Tensor::finished(Operation& op) {
  std::shared_ptr<Operation> next;
  {
    std::lock_guard lock(mutex_);
    if (queue_.empty() || queue_.front().get() != &op) return;
    queue_.pop_front();
    if (!queue_.empty()) next = queue_.front();
  }
  if (next) start(next);
}

std::shared_ptr<Operation> Tensor::poison(const Failure& failure) noexcept {
  std::lock_guard lock(mutex_);
  if (!poison_) poison_ = copy_of(failure);
  return queue_.empty() ? nullptr : queue_.front();
}

std::shared_ptr<Operation> Tensor::front() {
  std::lock_guard lock(mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

}  // namespace byteps
