// Frames over a stream of bytes.
#pragma once

#include <memory>

#include "transport/link.h"
#include "transport/stream/byte_stream.h"
#include "transport/stream/out_batch.h"
#include "wire/frame_reader.h"

namespace byteps {

class StreamLink final : public Link,
                         public ByteStream::User,
                         public std::enable_shared_from_this<StreamLink> {
 public:
  StreamLink(std::shared_ptr<ByteStream> stream, const LinkOptions& options, FrameSource& source,
             FrameSink& sink, Watcher& watcher);

  void open(EventLoop& loop) { stream_->open(loop, *this); }

  void flush() override;
  void let_go(const std::byte* begin, const std::byte* end, BufferPool& pool) override;
  bool alive() const override { return alive_; }
  void close() override;
  void give_up(End end, const char* why) noexcept override;
  void watch(bool wanted, int64_t now) override;
  const Traffic& traffic() const override { return traffic_; }
  bool sending() const override { return alive_ && !batch_.empty(); }
  bool delivered() const override { return batch_.empty() && stream_->delivered(); }
  bool has_unread() const override { return stream_->has_unread(); }
  int64_t round_trip_ns() const override { return stream_->round_trip_ns(); }
  bool same_machine() const override { return stream_->same_machine(); }

 private:
  void on_ready(bool readable, bool writable) override;
  void receive();
  void send();
  void end(End end, const std::string& reason);

  const std::shared_ptr<ByteStream> stream_;
  const LinkOptions options_;
  FrameSource& source_;
  Watcher& watcher_;
  FrameReader reader_;
  Traffic traffic_;
  OutBatch batch_;
  bool alive_ = true;
  bool flushing_ = false;
};

}  // namespace byteps
