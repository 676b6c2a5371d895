// The worker's core: takes tensors from any thread, moves them through the servers, completes operations.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/event_queue.h"
#include "base/tuning.h"
#include "local/group.h"
#include "wire/epoch.h"
#include "worker/budget.h"
#include "worker/codec_pool.h"
#include "worker/io_thread.h"
#include "worker/speed.h"

namespace byteps {

struct ClientSettings {
  uint64_t job = 0;
  Epoch epoch;  // the first one
  uint16_t rank = 0;
  unsigned codec_threads = 0;                  // that compress; 0: in the threads that send
  uint64_t credit_bytes = 0;                   // per link; 0: no limit
  uint32_t piece_bytes = tuning::kPieceBytes;  // of tensors without a codec; all workers alike
  double op_timeout_s = 600;
  double stall_warn_s = 10;
  double tolerated_silence_s = 0;  // of the network to a server while something is wanted of it; 0: any
  int verbose = 0;
  std::string sample;  // name or number of a tensor whose values are logged
  bool telemetry = true;
  unsigned io_threads = 0;  // that send and receive; 0: as many as help on this machine
  Runtime* runtime = &Runtime::machine();
};

class Client {
 public:
  explicit Client(ClientSettings settings);
  ~Client() { close(); }

  // One connection, authenticated, to every shard of every server. peer_pid: the server's process if each can
  // read the other's memory, else 0. tag: what the event of its end calls it. After start(): in the place of
  // one that has ended; what was sent over that and has no answer is sent again.
  void connect(uint16_t server, uint16_t shard, std::unique_ptr<Endpoint> endpoint, bool checksum,
               bool same_machine, pid_t peer_pid = 0, uint32_t tag = 0);
  // The next epoch begins, with the same workers and as many servers: all connections end, and operations go
  // on when those of the new epoch have been given to connect().
  void enter(Epoch epoch);
  // Before start(): the ranks of this machine reduce among themselves, and only the sums go to servers.
  void join(std::shared_ptr<LocalGroup> group);
  void start();

  // `direct`: without this machine's group.
  // One (server, shard) per partition: where its first piece goes. The others go round the server's shards.
  // codec: it is compressed on its way to servers. momentum: applied by apply_momentum().
  std::shared_ptr<Tensor> declare(uint32_t id, const std::string& name, DType dtype, Cut cut,
                                  const std::vector<std::pair<uint16_t, uint16_t>>& placement,
                                  bool direct = false,
                                  const std::optional<compress::DeclaredCodec>& codec = {},
                                  bool momentum = false);
  // src and dst have the tensor's bytes, may be the same, and stay valid until the operation is done.
  std::shared_ptr<Operation> push_pull(std::shared_ptr<Tensor> tensor, const std::byte* src, std::byte* dst,
                                       int32_t priority, bool average, float lr = 0);
  // In place: the bytes of the rank `root` arrive everywhere.
  std::shared_ptr<Operation> broadcast(std::shared_ptr<Tensor> tensor, std::byte* data, uint32_t root,
                                       int32_t priority);
  // All operations, pending and future, fail with this; the first call counts.
  void fail(Failure failure);
  // `lack`: a worker has no memory for it; else ranks disagree on it.
  void fail_tensor(uint32_t id, const std::string& message, bool lack = false);
  // The name has been declared anew: operations on this tensor are done, and none will follow.
  void forget(uint32_t id);
  // This worker has said goodbye: what still needs it fails.
  void depart(uint16_t rank);
  // Ends all threads and connections; pending operations fail. Idempotent.
  void close();

  EventQueue& events() { return events_; }
  std::map<std::string, uint64_t> counters() const;
  double speed_bytes_per_s() const { return speed_.bytes_per_s(clock_.now_ns()); }

  // For the worker's other parts.
  const ClientSettings& settings() const { return settings_; }
  const Clock& clock() const { return clock_; }
  // What a rank, and this one, is to the servers.
  uint16_t child_of(uint32_t rank) const { return settings_.epoch.child_of.at(rank); }
  uint16_t child() const { return child_of(settings_.rank); }
  uint16_t rank_count() const { return settings_.epoch.rank_count(); }
  Failure failure() const noexcept;
  // What the `detail` of an ERROR frame and its text mean to the caller.
  Failure failure_of(uint32_t detail, std::string message) const;
  // This process has no memory to go on with a tensor, and perhaps none to say so in words.
  Failure lack(const std::string& tensor, const char* why) const noexcept;
  // This operation in flight and all later ones on its tensor fail: the other ranks may go on with the round
  // that it does not see the end of.
  void give_up(Operation& op, const Failure& failure);
  // The operation has failed: what the threads have of it comes back soon. Any number of times.
  void release_routes(const Operation& op);
  void post(Route& route, const std::shared_ptr<Operation>& op);
  CodecPool& codecs() { return codecs_; }
  // Of elements, and of what travels for them.
  void count_push(uint64_t bytes, uint64_t wire_bytes);
  void count_pull(uint64_t bytes, uint64_t wire_bytes);
  void count_again(uint64_t pieces) { pieces_again_.fetch_add(pieces, std::memory_order_relaxed); }
  void count_reconnection() { reconnections_.fetch_add(1, std::memory_order_relaxed); }
  void count_operation(const Operation& op);
  void stalled(Operation& op, const std::string& missing);
  void count_local(const Operation& op);
  void check_age(Operation& op, int64_t now, std::string missing, const std::string& detail = "");
  void sample(const Tensor& tensor, const char* stage, uint32_t round, uint32_t piece, const std::byte* data,
              size_t bytes, DType dtype);

 private:
  std::shared_ptr<Operation> submit(std::shared_ptr<Operation> op);
  void abandon(const std::shared_ptr<Operation>& op);
  template <class Make>
  void make_named(const std::string& tensor, const char* what, Make make) const;

  const ClientSettings settings_;
  const Clock clock_;
  EventQueue events_;
  std::shared_ptr<LocalGroup> group_;
  SpeedMeter speed_;
  CodecPool codecs_;
  Budget budget_;  // outlives the threads
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::map<std::pair<uint16_t, uint16_t>, ServerLink*> links_;  // by (server, shard)
  size_t connected_ = 0;
  bool started_ = false;
  std::atomic<uint64_t> pushed_bytes_{0}, pulled_bytes_{0}, pushed_wire_bytes_{0}, pulled_wire_bytes_{0},
      pieces_sent_{0}, pieces_again_{0}, reconnections_{0}, operations_{0}, local_bytes_{0};
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // of what follows
  Failure failure_;
  std::unordered_map<uint32_t, std::shared_ptr<Tensor>> tensors_;
};

}  // namespace byteps
