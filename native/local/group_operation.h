// An operation and its tensor as the group of a machine sees them. The worker's own have more, and do what a
// group asks for: a group knows neither the threads nor the links of the worker that it belongs to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/completion.h"
#include "local/slot.h"
#include "reduce/dtype.h"
#include "transport/shm/arena.h"
#include "wire/cut.h"

namespace byteps {

class GroupTensor {
 public:
  GroupTensor(uint32_t id, std::string name, DType dtype, Cut cut)
      : id(id), name(std::move(name)), dtype(dtype), cut(cut) {}

  const uint32_t id;
  const std::string name;
  const DType dtype;
  const Cut cut;
  SlotView slot;  // where the ranks of this machine reduce it, if they do

  // Memory of its size in the arena, made when it is first needed.
  std::byte* staging(const std::shared_ptr<Arena>& arena) {
    if (!staging_) {
      staging_ = std::shared_ptr<std::byte>(arena->allocate(cut.tensor_bytes),
                                            [arena](std::byte* block) { arena->free(block); });
    }
    return staging_.get();
  }

 private:
  std::shared_ptr<std::byte> staging_;
};

class GroupOperation : public Completion {
 public:
  // `shared` outlives it.
  GroupOperation(GroupTensor& shared, const std::byte* src, std::byte* dst, int32_t priority, uint16_t flags,
                 uint32_t root)
      : shared(shared), src(src), dst(dst), priority(priority), flags(flags), root(root) {}
  virtual ~GroupOperation() = default;

  GroupTensor& shared;
  const std::byte* const src;
  std::byte* const dst;
  const int32_t priority;
  const uint16_t flags;  // kFlagAverage, kFlagBroadcast
  const uint32_t root;   // of a broadcast: a rank
  uint32_t round = 0;    // set when its turn comes

  // The group's own.
  std::atomic<bool> started{false};   // its turn has come: `round` is valid
  std::atomic<bool> posted{false};    // its pieces are on their way to the servers
  std::atomic<bool> settling{false};  // somebody is ending it
  // It has failed, but another rank may be writing into its memory: it never becomes done, and the memory
  // must be kept.
  std::atomic<bool> given_up{false};
  std::byte* staged = nullptr;  // where its bytes are while they are summed, if not at src and dst
  std::byte* landing() const { return staged ? staged : dst; }
  size_t active_index = 0;

  // What the group asks the worker for. Operations on one tensor take turns.
  virtual std::shared_ptr<GroupOperation> whose_turn() = 0;
  virtual void end_turn() = 0;
  // With servers above: the pieces that this rank pushes for its machine.
  virtual void send_pieces() = 0;
  virtual bool has_pieces_out() const = 0;
  // It has failed: they come back soon. Any number of times.
  virtual void recall_pieces() = 0;
  // This rank has no memory to go on with it: it fails, and so do all that follow it.
  virtual void lack_memory(const char* why) noexcept = 0;
  // It waits for these: perhaps longer than may be.
  virtual void check_age(const std::string& missing) = 0;
  virtual void count() = 0;
  // Its values, if the user asked to see them.
  virtual void show(const char* stage, const std::byte* data) = 0;
};

}  // namespace byteps
