// A worker's end of the connection to one shard of one server: what is sent next, and where results land.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>

#include "base/ready_queue.h"
#include "transport/endpoint.h"
#include "transport/shm/lease.h"
#include "transport/shm/peer_memory.h"
#include "worker/budget.h"
#include "worker/codec_pool.h"
#include "worker/tensor.h"
#include "worker/window.h"

namespace byteps {

class IoThread;

class ServerLink final : public FrameSource,
                         public FrameSink,
                         public byteps::Link::Watcher,
                         public Budget::Link {
 public:
  ServerLink(IoThread& thread, uint16_t server, Endpoint& endpoint, const LinkOptions& options,
             uint64_t most_bytes, Budget* budget, uint32_t turn, pid_t peer_pid);

  uint16_t server() const { return server_; }
  IoThread& thread() { return thread_; }
  const std::shared_ptr<byteps::Link>& link() const { return link_; }
  void nudge() override;  // any thread: it may be its turn to send

  // Thread of the link.
  void retry() { touched_ = true; }
  // Once a second: whether the server can be reached, if something is wanted of it.
  void want() { wanted_ = true; }
  void watch(int64_t now) { link_->watch(std::exchange(wanted_, false), now); }
  void submit(Route& route);
  void abandon(Route& route);  // the operation's memory is about to go
  void forget(uint32_t tensor) { routes_.erase(tensor); }
  void settle();
  void coded(const CodecOutcome& coded);

  // A thread of the pool of codecs.
  void work_on(const CodecJob& job);

 private:
  // Pieces [at, end) of a route, still to be pushed: in their order, or because the server has asked for one,
  // which others have sent or which it has not kept.
  enum class Why : uint8_t { in_order, wanted, again };
  struct Ready {
    Route* route;
    uint32_t at, end;
    Why why = Why::in_order;
  };

  bool next(OutFrame& out) override;
  std::byte* begin(const Header& header) override;
  void end(const Header& header, bool landed) override;
  void on_end(byteps::Link& link, byteps::Link::End end, const std::string& reason) override;
  bool must_wait_for_others(const Ready& ready) const;
  bool may_overtake(const Ready& ready) const;
  void push_next(Route& route, uint32_t position, Why why);
  void take_out(Route& route);
  bool has_room(uint64_t bytes);
  bool take_turn(const Ready& ready, uint32_t piece, uint32_t length, bool overtakes);
  // Sums the ranks of this machine into what is about to be pushed. False: the operation has failed.
  bool gather(OutFrame& out, const Ready& ready);
  // With a codec: the payload of a piece, made once. False: the operation has failed.
  bool encode(Route& route, uint32_t position);
  void decode(Route& route, uint32_t position, uint32_t bytes);
  bool prepare(Ready& ready);
  uint32_t wire_bytes(const Route& route, uint32_t piece) const;
  void fill_coded(OutFrame& out, const Route& route, uint32_t piece);
  void take_coded(const Header& header, Route& route, size_t position);
  std::byte* begin_result(const Header& header);
  std::string text() const;
  std::byte* begin_coded(const Header& header, const Route& route, uint32_t piece);
  void refuse_result(const Route& route, uint32_t position, const std::string& why);
  std::string refusal(const Route& route) const;
  void landed(Route& route, uint32_t piece, uint32_t wire_bytes);
  void fill_refuse(OutFrame& out, const Ready& ready, const std::string& why);
  void fill_push(OutFrame& out, Ready& ready);
  // The piece of an operation under way that a frame from the server is about. None, if nobody waits for it
  // any more.
  struct Piece {
    Route* route = nullptr;
    size_t position = 0;
  };
  Piece find(const Header& header) const;
  void check_pushed(const Header& header, const Piece& about) const;
  bool keeps_own(const Operation& op) const;
  void enqueue(int32_t priority, const Ready& ready);
  void dequeue();
  void let_go(const Route& route);
  void piece_done(Route& route);
  void fetch(const Header& header, Route& route, std::byte* to, uint32_t bytes);
  void answered(Route& route, size_t position);

  IoThread& thread_;
  const uint16_t server_;
  Window window_;        // of this link alone: what its credit allows
  const uint32_t turn_;  // among links that are equally far with their pieces, of 2^32
  // The first piece of something more urgent than what was sent last goes though there is no room: the server
  // gives the credit of what it overtakes back when it comes (aggregator/open_bytes.h). One at a time: a
  // backward pass makes one tensor after the other, each more urgent than the last.
  int32_t last_priority_ = 0;
  bool overtook_ = false;           // and no credit has come since
  Budget* const budget_;            // of all links to other machines, or nullptr: the server is on this one
  std::optional<PeerMemory> peer_;  // if payloads may go by address
  Lease lease_;                     // of contributions pushed by address
  std::shared_ptr<byteps::Link> link_;
  std::unordered_map<uint32_t, Route*> routes_;  // by tensor id
  ReadyQueue<Ready> ready_;
  // Of these two pieces are under way and none is answered: what follows them waits until one is. A more
  // urgent tensor interrupts ranks at different moments. If each had sent as much as its window allows by
  // then, they would have sent different pieces, whose rounds stay open until the end of the step; so all of
  // them send the same two of a tensor, and go on when they know that the others have come to it, too. Nobody
  // waits for ever: the first two of a tensor wait for no answer, whatever else the server has asked for, so
  // all ranks send them.
  std::vector<ReadyQueue<Ready>::Entry> unanswered_;
  Piece about_;                   // what the frame that is coming in is about
  std::vector<std::byte> small_;  // payload of an ERROR or STALL
  Offer offer_;                   // payload of a RESULT by address
  bool waiting_ = false;          // for its turn in the budget
  uint64_t asked_at_bytes_ = 0;   // what had been sent when credit was last asked for
  bool touched_ = false;
  bool wanted_ = false;
};

}  // namespace byteps
