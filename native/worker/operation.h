// One push_pull or broadcast on its way: what the caller waits for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace byteps {

class Tensor;

// Why an operation failed, in the words that Python turns into an exception.
struct Failure {
  std::string kind;  // "lost", "timeout", "conflict", "protocol", "closed"
  std::string message;
  std::string role;
  int rank = -1;
  std::string host;
};

// Lives until nobody needs it: the caller's handle, and every route that still has pieces of it. The memory
// it points to is not touched after done() is true.
class Operation {
 public:
  Operation(std::shared_ptr<Tensor> tensor, const std::byte* src, std::byte* dst, int32_t priority,
            uint16_t flags, uint32_t root);

  const std::shared_ptr<Tensor> tensor;
  const std::byte* const src;
  std::byte* const dst;
  const int32_t priority;
  const uint16_t flags;  // kFlagAverage, kFlagBroadcast
  const uint32_t root;   // of a broadcast: a child of the servers
  const int64_t started_ns;
  uint32_t round = 0;  // set by the tensor when its turn comes

  // What overtook or preceded it: bytes of other operations that left on its links between its submission and
  // its own last piece.
  std::atomic<uint64_t> waited_bytes{0};
  std::atomic<bool> stall_told{false};

  bool done() const { return state_.load(std::memory_order_acquire) & kDone; }
  // Returns done(). Wakes as soon as the operation is done.
  bool wait_for(int64_t timeout_ns);
  // Empty kind: it succeeded. Valid once done().
  Failure failure() const;

  // The first failure wins; the operation ends when its routes have let go of it.
  void fail(Failure failure);
  bool failing() const { return failing_.load(std::memory_order_acquire); }
  void expect_routes(uint32_t count) { routes_left_.store(count, std::memory_order_release); }
  // True for the last one: the caller then calls finish().
  bool release_route() { return routes_left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void finish();

  void note_missing(const std::string& who);
  std::string missing() const;

 private:
  static constexpr uint32_t kDone = 1, kWaited = 2;
  std::atomic<uint32_t> state_{0};  // a futex word
  std::atomic<uint32_t> routes_left_{0};
  std::atomic<bool> failing_{false};
  mutable std::mutex mutex_;  // of what follows
  Failure failure_;
  std::string missing_;
};

}  // namespace byteps
