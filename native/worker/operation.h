// One push_pull or broadcast on its way: what the caller waits for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "local/group_operation.h"
#include "worker/tensor_codec.h"

namespace byteps {

class LocalGroup;
class Tensor;

// Lives until nobody needs it: the caller's handle, and every route that still has pieces of it. The memory
// it points to is not touched after done() is true.
class Operation final : public GroupOperation, public std::enable_shared_from_this<Operation> {
 public:
  Operation(std::shared_ptr<Tensor> tensor, const std::byte* src, std::byte* dst, int32_t priority,
            uint16_t flags, uint32_t root);

  const std::shared_ptr<Tensor> tensor;
  const int64_t started_ns;
  float lr = 0;  // the learning rate that a codec may want; set before it is submitted
  std::optional<TensorCodec::Begun> coding;  // set by the tensor when its turn comes, if it is compressed

  // What overtook or preceded it: bytes of other operations that left on its links between its submission and
  // its own last piece.
  std::atomic<uint64_t> waited_bytes{0};
  std::atomic<bool> stall_told{false};

  // If the ranks of this machine reduce it among themselves, set before it is submitted: whoever waits for it
  // has to help.
  std::shared_ptr<LocalGroup> group;

  bool done();
  // Returns done(). Wakes as soon as the operation is done.
  bool wait_for(int64_t timeout_ns);

  // finished() and wait_finished() are the end as others have noticed it; the two above look for themselves.
  // One that fails ends when its routes have let go of it.
  void expect_routes(uint32_t count) { routes_left_.store(count, std::memory_order_release); }
  // True for the last one: the caller then calls finish().
  bool release_route() { return routes_left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  void note_missing(const std::string& who);
  std::string missing() const;

  // For the group.
  std::shared_ptr<GroupOperation> whose_turn() override;
  void end_turn() override;
  void send_pieces() override;
  bool has_pieces_out() const override { return routes_left_.load(std::memory_order_acquire) > 0; }
  void recall_pieces() override;
  void lack_memory(const char* why) noexcept override;
  void check_age(const std::string& missing) override;
  void count() override;
  void show(const char* stage, const std::byte* data) override;

 private:
  std::atomic<uint32_t> routes_left_{0};
  mutable std::mutex mutex_;  // of what follows
  std::string missing_;
};

}  // namespace byteps
