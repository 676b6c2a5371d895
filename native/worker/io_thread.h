// One thread that sends and receives for some of a worker's links.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/buffer.h"
#include "base/runtime.h"
#include "wire/epoch.h"
#include "worker/codec_pool.h"
#include "worker/server_link.h"

namespace byteps {

class Client;

class IoThread final : public EventLoop::Owner {
 public:
  IoThread(Client& client, std::shared_ptr<const Epoch> epoch, unsigned index);

  // Before start().
  ServerLink& add_link(uint16_t server, Endpoint& endpoint, bool checksum, uint64_t most_bytes,
                       Budget* budget, uint32_t turn, pid_t peer_pid, uint32_t tag);

  // Any thread.
  void start() { loop_->start(); }
  void stop() { loop_->stop(); }
  void drain() { on_wake(); }  // after stop(): what came in between is let go of
  void submit(Route& route, std::shared_ptr<Operation> op);
  // Lets go of this operation's memory if this thread has any of it; its failure is set already.
  void abandon(std::shared_ptr<Operation> op);
  // No operation on this tensor will follow.
  void forget(std::shared_ptr<Tensor> tensor);
  // A job of the pool of codecs is done. Needs no memory: there is room for the outcomes of all jobs that
  // were posted.
  void codec_done(CodecOutcome outcome) noexcept;
  // A new connection for this link, in the place of one that has ended.
  void connect_again(ServerLink& link, std::unique_ptr<Endpoint> endpoint, bool checksum, uint32_t tag);
  // The next epoch: all links wait for connections of that.
  void enter(std::shared_ptr<const Epoch> epoch);
  // It may be the turn of this link to send.
  void nudge(ServerLink& link);
  // The client has failed: ends all links and lets go of all operations.
  void abandon_all();
  uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  uint64_t received_bytes() const { return received_bytes_.load(std::memory_order_relaxed); }

  // This thread.
  Client& client() { return client_; }
  const Epoch& epoch() const { return *epoch_; }
  EventLoop& loop() { return *loop_; }
  int64_t now_ns() const { return clock_.now_ns(); }
  void post_job(int32_t priority, const CodecJob& job);
  BufferPool& pool() { return pool_; }
  void release(Route& route);
  void link_ended(ServerLink& link, Link::End end, const std::string& reason);
  void trace_frame(const char* direction, const ServerLink& link, const Header& header);

 private:
  struct Work {
    enum class Kind { submit, abandon, forget, nudge } kind;
    Route* route = nullptr;
    std::shared_ptr<Operation> op{};
    std::shared_ptr<Tensor> tensor{};
    ServerLink* link = nullptr;
  };

  void on_wake() override;
  void on_batch_end() override;
  int64_t next_deadline_ns() const override {
    return active_.empty() && !watching_ ? EventLoop::kNever : next_look_ns_;
  }
  void on_deadline(int64_t now) override;
  void on_exception(const char* what) noexcept override;
  void post(Work work);
  void handle(Work& work);
  void handle(const CodecOutcome& outcome);
  void fail(const std::shared_ptr<Operation>& op, const char* why) noexcept;
  void drop(Route& route) noexcept;
  void route_done(const std::shared_ptr<Operation>& op);
  void watch_links(int64_t now);

  LinkOptions options(bool checksum) const;

  Client& client_;
  std::shared_ptr<const Epoch> epoch_;
  BufferPool pool_;
  const Clock clock_;
  const std::unique_ptr<EventLoop> loop_;
  std::vector<std::unique_ptr<ServerLink>> links_;
  std::vector<Route*> active_;
  int64_t next_look_ns_ = 0;                // at operations that take too long, and at the links they need
  bool watching_ = false;                   // links were looked at because of operations
  std::atomic<bool> all_abandoned_{false};  // and no word to be put into the inbox: that could fail
  bool ended_ = false;                      // this thread has heard of it
  std::atomic<uint64_t> sent_bytes_{0}, received_bytes_{0};

  std::mutex inbox_mutex_;
  std::vector<Work> inbox_;
  std::vector<CodecOutcome> codec_inbox_;
  std::vector<Work> taken_;  // swapped with inbox_, so that neither is allocated anew
  std::vector<CodecOutcome> taken_outcomes_;
  size_t jobs_ = 0;  // posted to the pool, and not back: so many outcomes have room in both
};

}  // namespace byteps
