// A worker's end of the connection to one shard of one server: sends what is next (send_order.h), and brings
// results to where they belong.
#pragma once

#include <unordered_map>
#include <utility>

#include "transport/endpoint.h"
#include "worker/budget.h"
#include "worker/codec_pool.h"
#include "worker/payloads.h"
#include "worker/send_order.h"
#include "worker/tensor.h"

namespace byteps {

class IoThread;

class ServerLink final : public FrameSource,
                         public FrameSink,
                         public byteps::Link::Watcher,
                         public Budget::Sender,
                         public SendOrder::Sizes {
 public:
  ServerLink(IoThread& thread, uint16_t server, uint64_t most_bytes, Budget* budget, uint32_t turn,
             pid_t peer_pid);

  uint16_t server() const { return server_; }
  pid_t peer_pid() const { return peer_pid_; }
  IoThread& thread() { return thread_; }
  const std::shared_ptr<byteps::Link>& link() const { return link_; }
  void nudge() override;  // any thread: it may be its turn to send

  // Thread of the link, or before it starts.
  // Its first connection, or the successor of the one it has: what was sent over that and has no answer is
  // sent again. tag: what the event of its end calls it.
  void connect(Endpoint& endpoint, const LinkOptions& options, uint32_t tag);
  uint32_t tag() const { return tag_; }

  // Thread of the link.
  void disconnect();  // there will be another connection
  // Of all its connections.
  byteps::Link::Traffic traffic() const;
  void retry() { touched_ = true; }
  // Once a second: whether the server can be reached, if something is wanted of it.
  void want() { wanted_ = true; }
  void watch(int64_t now) { link_->watch(std::exchange(wanted_, false), now); }
  void submit(Route& route);
  void abandon(Route& route);  // the operation's memory is about to go
  void forget(uint32_t tensor) { routes_.erase(tensor); }
  void settle();
  void codec_done(const CodecOutcome& outcome);

  // A thread of the pool of codecs.
  void work_on(const CodecJob& job);

 private:
  bool next(OutFrame& out) override;
  std::byte* begin(const Header& header) override;
  void end(const Header& header, bool landed) override;
  void on_end(byteps::Link& link, byteps::Link::End end, const std::string& reason) override;
  uint32_t wire_bytes(const Transfer& transfer, uint32_t position) const override;
  // False: the operation has failed.
  bool fill_push(OutFrame& out, Route& route, const NextStep& step);
  void fill_refuse(OutFrame& out, const Route& route, uint32_t position, const std::string& why);
  void replay();
  std::byte* begin_result(const Header& header);
  void end_result(const Header& header, Route& route, uint32_t position, bool has_payload);
  void landed(Route& route, uint32_t position, uint32_t wire_bytes);
  void refuse_result(const Route& route, uint32_t position, const std::string& why);
  std::string text() const;
  // The piece of an operation in flight that a frame from the server is about. None, if nobody waits for it
  // any more.
  struct Piece {
    Route* route = nullptr;
    uint32_t position = 0;
  };
  Piece find(const Header& header) const;
  void check_pushed(const Header& header, const Piece& about) const;
  bool keeps_own(const Operation& op) const;
  void let_go(const Route& route);
  void piece_done(Route& route);
  void answered(Route& route, uint32_t position);

  IoThread& thread_;
  const uint16_t server_;
  const pid_t peer_pid_;
  SendOrder order_;
  Payloads payloads_;
  std::shared_ptr<byteps::Link> link_;
  uint32_t tag_ = 0;
  byteps::Link::Traffic past_;                   // of connections before this one
  std::unordered_map<uint32_t, Route*> routes_;  // by tensor id
  Piece about_;                                  // what the frame that is coming in is about
  std::vector<std::byte> small_;                 // payload of an ERROR or STALL
  bool touched_ = false;
  bool wanted_ = false;
};

}  // namespace byteps
