// A shard's end of the connection to one child: reads its contributions, sends it results.
#pragma once

#include <vector>

#include "aggregator/key_state.h"
#include "base/ready_queue.h"
#include "transport/tcp/tcp_link.h"

namespace byteps {

class Shard;

class ChildLink final : public FrameSource, public FrameSink, public Link::Watcher {
 public:
  ChildLink(Shard& shard, EventLoop& loop, uint16_t child, Fd fd, TcpLink::Options options);

  uint16_t child() const { return child_; }
  const std::shared_ptr<TcpLink>& link() const { return link_; }

  void send(Header header, const std::byte* payload, BufferRef keep);
  void send_text(Header header, std::string_view text);
  // End of a batch: answers a request for credit if no result has carried it, and flushes.
  void settle();

 private:
  bool next(OutFrame& out) override;
  std::byte* begin(const Header& header) override;
  void end(const Header& header, bool landed) override;
  void on_end(Link& link, Link::End end, const std::string& reason) override;

  Shard& shard_;
  const uint16_t child_;
  std::shared_ptr<TcpLink> link_;
  ReadyQueue<OutFrame> out_;
  BufferRef incoming_;             // where the payload of the PUSH being read lands
  std::vector<std::byte> small_;   // where the payload of a DECLARE lands
  uint64_t received_bytes_ = 0;    // PUSH payload consumed, the `received` of what we send
  uint64_t told_received_ = 0;     // the last value sent
  bool credit_wanted_ = false;
  bool touched_ = false;           // has something to send at the end of this batch
};

}  // namespace byteps
