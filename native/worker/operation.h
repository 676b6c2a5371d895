// One push_pull or broadcast on its way: what the caller waits for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker/tensor_codec.h"

namespace byteps {

class Tensor;
class Operation;

// Who makes progress on an operation that its caller may have to help along; see local/group.h.
class OperationDriver {
 public:
  virtual ~OperationDriver() = default;
  virtual bool poll(Operation& op) = 0;
  virtual bool wait(Operation& op, int64_t timeout_ns) = 0;
};

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
  const uint32_t root;   // of a broadcast: a rank
  const int64_t started_ns;
  uint32_t round = 0;  // set by the tensor when its turn comes
  float lr = 0;        // the learning rate that a codec may want; set before it is submitted
  std::optional<TensorCodec::Begun> coding;  // set with the round, if it is compressed

  // What overtook or preceded it: bytes of other operations that left on its links between its submission and
  // its own last piece.
  std::atomic<uint64_t> waited_bytes{0};
  std::atomic<bool> stall_told{false};

  // Over the shared memory of a machine, set before the operation is submitted; the rest is the driver's.
  std::shared_ptr<OperationDriver> driver;
  std::atomic<bool> started{false};   // its turn has come: `round` is valid
  std::atomic<bool> posted{false};    // its pieces are on their way to the servers
  std::atomic<bool> settling{false};  // somebody is ending it
  // It has failed, but another rank may be writing into its memory: it never becomes done, and the memory
  // must be kept.
  std::atomic<bool> given_up{false};
  std::byte* staged = nullptr;  // where its bytes are while they are summed, if not at src and dst
  std::byte* landing() const { return staged ? staged : dst; }
  size_t active_index = 0;

  bool done() { return finished() || (driver && driver->poll(*this)); }
  // Returns done(). Wakes as soon as the operation is done.
  bool wait_for(int64_t timeout_ns) {
    return driver ? driver->wait(*this, timeout_ns) : wait_finished(timeout_ns);
  }

  // The end as others have noticed it; the two above look for themselves.
  bool finished() const { return state_.load(std::memory_order_acquire) & kDone; }
  bool wait_finished(int64_t timeout_ns);
  // Empty kind: it succeeded. Valid once done().
  Failure failure() const;

  // The first failure wins; the operation ends when its routes have let go of it.
  void fail(Failure failure);
  bool failing() const { return failed_ns_.load(std::memory_order_acquire) != 0; }
  int64_t failed_ns() const { return failed_ns_.load(std::memory_order_acquire); }
  void expect_routes(uint32_t count) { routes_left_.store(count, std::memory_order_release); }
  // True for the last one: the caller then calls finish().
  bool release_route() { return routes_left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  uint32_t routes_left() const { return routes_left_.load(std::memory_order_acquire); }
  void finish();

  void note_missing(const std::string& who);
  std::string missing() const;

 private:
  static constexpr uint32_t kDone = 1, kWaited = 2;
  std::atomic<uint32_t> state_{0};  // a futex word
  std::atomic<uint32_t> routes_left_{0};
  std::atomic<int64_t> failed_ns_{0};
  mutable std::mutex mutex_;  // of what follows
  Failure failure_;
  std::string missing_;
};

}  // namespace byteps
