// One rank's membership in the group of its machine: contributes, helps with the sums, notices the ends.
//
// Work is done by whoever is there. The rank that comes last sums a small tensor at once. Of a large one
// every rank that waits for it takes parts; if nobody waits, the helper thread of the rank that came last
// does. With servers above (`has_parent`) the sum of a piece is made by its owner when it sends it, and the
// owner brings the result to the others: see io_thread.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/event_queue.h"
#include "base/spin.h"
#include "local/group_memory.h"
#include "local/group_operation.h"
#include "local/slot.h"
#include "transport/shm/arena.h"

namespace byteps {

struct GroupSettings {
  std::vector<uint16_t> ranks;  // of the job, by local rank
  uint32_t job_ranks = 0;       // averages divide by it
  bool peers_readable = false;  // process_vm_readv and _writev work between all of them
  bool has_parent = false;
  int64_t spin_ns = 0;  // that a rank may look for the others before it sleeps; 0: ranks have no core each
};

class LocalGroup {
 public:
  LocalGroup(GroupSettings settings, std::shared_ptr<Mapping> board, std::shared_ptr<Arena> arena,
             GroupMemory memory);
  ~LocalGroup() { close(); }

  // Before use; starts the helper thread. `events` outlives close(); hosts by rank of the job.
  void attach(EventQueue& events, std::vector<std::string> worker_hosts);
  // All operations have failed. Ends the thread; what cannot be let go of yet stays not done. Idempotent.
  void close();

  SlotView slot_of(uint32_t tensor) const;
  bool has_parent() const { return settings_.has_parent; }
  uint32_t own() const { return memory_.own(); }
  uint32_t size() const { return memory_.ranks(); }

  // Any thread.
  void contribute(const std::shared_ptr<GroupOperation>& op);
  void want_bell(GroupOperation& op);
  bool poll(GroupOperation& op);
  bool wait(GroupOperation& op, int64_t timeout_ns);
  // The operation has failed on this rank: nothing may touch its memory any more, and no rank gets a result.
  void give_up(GroupOperation& op);
  // With servers above, for the pieces that this rank owns. Why the ranks of this machine have nothing to
  // push: they called different operations. Empty: they have.
  std::string disagreement(const GroupOperation& op) const;
  // The sum of this machine into the destination, to be pushed. False: the operation has failed.
  bool gather(GroupOperation& op, uint32_t piece);
  // The same for half types, in float32 and to `sum`: it is rounded once, by the servers.
  static bool sums_wide(const GroupOperation& op);
  bool gather_wide(GroupOperation& op, uint32_t piece, float* sum);
  // The result out of the destination to the other ranks, or its failure.
  void publish(GroupOperation& op, uint32_t piece);
  void publish_failure(GroupOperation& op, const Failure& failure);
  // This rank of the job has said goodbye.
  void depart(uint16_t rank);

 private:
  // How long a failed operation waits for ranks that are just writing into its memory. After that it fails
  // all the same, and its memory is kept: a rank that died in the middle would be waited for in vain.
  static constexpr int64_t kDrainNs = kNanosecondsPerSecond;

  void enter(GroupOperation& op);
  void open(const std::shared_ptr<GroupOperation>& op);
  bool same_terms(const GroupOperation& op);
  void work_on(GroupOperation& op);
  void settle(GroupOperation& op);
  void take_failure(GroupOperation& op, const board::Reason* reason);
  void finish_part(GroupOperation& op, uint32_t parts);
  void fail_without(GroupOperation& op, uint32_t local);
  void check_age(GroupOperation& op);
  bool comes_soon(const GroupOperation& op);
  void peer_is_gone(const GroupOperation& op, uint32_t local);
  void drop_part(const GroupOperation& op, uint32_t gone);
  bool look_around();
  void help();
  void help_once();
  void ring(uint32_t rank) const { bell(rank).notify(); }
  EventCount& bell(uint32_t rank) const;
  uint32_t parts_of(const GroupOperation& op) const;
  std::string missing(const GroupOperation& op) const;
  std::string name_of(uint32_t local) const;
  std::string host_of(uint16_t rank) const;
  Failure left(uint32_t local, const std::string& tensor) const noexcept;

  const GroupSettings settings_;
  const std::shared_ptr<Mapping> board_;
  const std::shared_ptr<Arena> arena_;
  const GroupMemory memory_;
  EventQueue* events_ = nullptr;
  std::vector<std::string> worker_hosts_;
  std::thread helper_;
  std::atomic<bool> closed_{false};
  SpinScore spin_score_;

  std::mutex mutex_;  // of what follows
  std::vector<std::shared_ptr<GroupOperation>> active_;
  int departed_ = -1;  // local rank of the first that left
};

}  // namespace byteps
