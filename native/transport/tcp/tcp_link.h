// Frames over one connected TCP socket.
#pragma once

#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "transport/transport.h"
#include "wire/frame_reader.h"

namespace byteps {

class TcpLink final : public Link, public EventLoop::Handler, public std::enable_shared_from_this<TcpLink> {
 public:
  struct Options {
    uint64_t job = 0;
    uint32_t epoch = 0;
    bool checksum = false;  // put a CRC on the payloads sent; payloads received are checked if they carry one
  };
  // What a link has moved, for the counters; written by the loop's thread only.
  struct Traffic {
    uint64_t sent_bytes = 0;
    uint64_t received_bytes = 0;
  };

  TcpLink(EventLoop& loop, Fd fd, Options options, FrameSource& source, FrameSink& sink, Watcher& watcher);
  ~TcpLink() override;

  void open();  // loop thread: start listening to events
  void flush() override;
  bool alive() const override { return fd_.get() >= 0; }
  void close() override;
  void on_events(uint32_t events) override;
  const Traffic& traffic() const { return traffic_; }
  // The shortest time to the peer and back that the kernel has seen lately; 0 if it does not tell.
  int64_t round_trip_ns() const;
  // Both ends are on this machine: the kernel uses one address for them.
  bool nearby() const;
  // The memory [begin, end) is about to go: whatever of it is still to be sent is copied into the pool, and a
  // payload that is landing in it is thrown away.
  void let_go(const std::byte* begin, const std::byte* end, BufferPool& pool);

 private:
  void receive();
  bool fill_batch();
  void sent(size_t bytes);
  void want_write(bool yes);
  void end(End end, const std::string& reason);

  EventLoop& loop_;
  Fd fd_;
  const Options options_;
  FrameSource& source_;
  Watcher& watcher_;
  FrameReader reader_;
  Traffic traffic_;
  std::vector<OutFrame> batch_;  // taken from the source, not fully sent
  size_t batch_at_ = 0;          // first frame of the batch that is not fully sent
  size_t frame_at_ = 0;          // bytes of that frame already sent
  bool writing_ = false;
  bool flushing_ = false;
};

}  // namespace byteps
