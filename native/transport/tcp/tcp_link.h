// Frames over one connected TCP socket.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/event_loop.h"
#include "transport/tcp/reach.h"
#include "transport/transport.h"
#include "wire/frame_reader.h"

namespace byteps {

class TcpLink final : public Link, public EventLoop::Handler, public std::enable_shared_from_this<TcpLink> {
 public:
  struct Options {
    uint64_t job = 0;
    uint32_t epoch = 0;
    bool checksum = false;  // put a CRC on the payloads sent; payloads received are checked if they carry one
    int64_t tolerated_ns = 0;  // silence that watch() puts up with; 0: any
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
  bool sending() const { return batch_at_ < batch_.size(); }  // frames are given to it and not fully sent
  // The shortest time to the peer and back that the kernel has seen lately; 0 if it does not tell.
  int64_t round_trip_ns() const;
  // Nothing that was handed over is still on its way to the other machine.
  bool delivered() const;
  // Something has arrived that this end has not read yet.
  bool has_unread() const;
  // Something is wanted of the other end: ends the link when nothing has come through for too long. To be
  // called about once a second, and with false when nothing is wanted any more.
  void watch(bool wanted, int64_t now);
  // Both ends are on this machine: the kernel uses one address for them.
  bool nearby() const;
  // Its owner cannot go on with it: ends it as if it had ended by itself.
  void give_up(End end, const char* why) noexcept;
  // The memory [begin, end) is about to go: whatever of it is still to be sent is copied into the pool, and a
  // payload that is landing in it is thrown away.
  void let_go(const std::byte* begin, const std::byte* end, BufferPool& pool);

 private:
  void receive();
  bool fill_batch();
  void sent(size_t bytes);
  void want_write(bool yes);
  void wake_at(size_t bytes);
  void send();
  void end(End end, const std::string& reason);
  Questions questions() const;

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
  size_t wake_at_bytes_ = 1;     // what the socket must hold before the loop is woken
  bool writing_ = false;
  bool flushing_ = false;
  std::optional<Reach> reach_;  // while watched
};

}  // namespace byteps
