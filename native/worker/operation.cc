#include "worker/operation.h"

#include "worker/client.h"

namespace byteps {

Operation::Operation(std::shared_ptr<Tensor> tensor, const std::byte* src, std::byte* dst, int32_t priority,
                     uint16_t flags, uint32_t root)
    : GroupOperation(*tensor, src, dst, priority, flags, root),
      tensor(std::move(tensor)),
      started_ns(this->tensor->client.clock().now_ns()) {}

bool Operation::done() { return finished() || (group && group->poll(*this)); }

bool Operation::wait_for(int64_t timeout_ns) {
  return group ? group->wait(*this, timeout_ns) : wait_finished(timeout_ns);
}

void Operation::note_missing(const std::string& who) {
  std::lock_guard lock(mutex_);
  missing_ = who;
}

std::string Operation::missing() const {
  std::lock_guard lock(mutex_);
  return missing_;
}

std::shared_ptr<GroupOperation> Operation::whose_turn() { return tensor->front(); }
void Operation::end_turn() { tensor->finished(*this); }
void Operation::send_pieces() { tensor->post_routes(shared_from_this()); }
void Operation::recall_pieces() { tensor->client.release_routes(*this); }
void Operation::lack_memory(const char* why) noexcept { tensor->lack_memory(shared_from_this(), why); }
void Operation::check_age(const std::string& missing) {
  tensor->client.check_age(*this, tensor->client.clock().now_ns(), missing);
}
void Operation::count() { tensor->client.count_local(*this); }
void Operation::show(const char* stage, const std::byte* data) {
  tensor->client.sample(*tensor, stage, round, 0, data, tensor->cut.tensor_bytes, tensor->dtype);
}

}  // namespace byteps
