// A declared tensor as the worker's core knows it: how it is cut, where its pieces go, whose turn it is.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compress/momentum.h"
#include "reduce/dtype.h"
#include "wire/cut.h"
#include "worker/operation.h"
#include "worker/send_order.h"

namespace byteps {

class Client;
class LocalGroup;
class Payload;
class ServerLink;
class Tensor;

// The pieces of one tensor that travel over one link. Touched by that link's thread only, after declare().
struct Route : Transfer {
  ServerLink* link = nullptr;
  Tensor* tensor = nullptr;
  std::shared_ptr<Operation> op;  // the operation in flight
  Payload* payload = nullptr;     // how its contributions and results travel
  bool by_address = false;        // the server may read what it pushes in our memory
  uint32_t left = 0;              // pieces of it whose results have not landed
  std::string refusal;            // why this rank could not compress it
  uint32_t jobs = 0;              // in the pool of codecs, or on their way back
  bool dropped = false;           // let go of it when those have come back
  uint32_t rounds = 0;            // that have begun: of a later one nothing can be answered
  size_t active_index = 0;        // place in the thread's list of active routes

  // What the ranks of this machine have summed lies in the destination.
  const std::byte* pushed_memory() const;
  // Why this rank has nothing to push of the operation, if so.
  std::string why_refused() const;
};

// Operations on one tensor are done one after the other, in the order of the calls: each is a round of its
// own, and a round may begin only when the one before it has its result.
class Tensor : public GroupTensor, public std::enable_shared_from_this<Tensor> {
 public:
  Tensor(Client& client, uint32_t id, std::string name, DType dtype, Cut cut)
      : GroupTensor(id, std::move(name), dtype, cut), client(client) {}

  Client& client;
  std::vector<std::unique_ptr<Route>> routes;
  LocalGroup* group = nullptr;                   // the ranks of this machine reduce it among themselves
  std::unique_ptr<TensorCodec> codec;            // if it is compressed on its way to servers
  std::unique_ptr<compress::Momentum> momentum;  // if that is applied here

  // The state of the codec, between operations: how many rounds it has seen.
  uint32_t steps();
  void set_steps(uint32_t steps);

  // Any thread.
  void submit(std::shared_ptr<Operation> op);
  void finished(Operation& op);
  // Every operation from now on fails with this. Returns the one in flight, if any.
  std::shared_ptr<Operation> poison(const Failure& failure) noexcept;
  // The operation in flight, if any.
  std::shared_ptr<Operation> front();
  // This rank's pieces begin their way to the servers.
  void post_routes(const std::shared_ptr<Operation>& op);
  // This rank cannot go on with it: it fails, and so do all that follow it.
  void lack_memory(const std::shared_ptr<Operation>& op, const char* why) noexcept;

 private:
  void start(const std::shared_ptr<Operation>& op);

  std::mutex mutex_;
  std::deque<std::shared_ptr<Operation>> queue_;  // front: in flight
  uint32_t next_round_ = 0;
  Failure poison_;
};

}  // namespace byteps
