// A stream that seals what it gives to another one, and opens what comes from it.
//
// What write() says it has taken is in records that the stream below has taken as a whole. A record that it
// has taken in part is kept, and counts as taken when the rest of it is: until then whoever writes offers the
// same bytes again, as StreamLink does, and they are not sealed a second time.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/sealed/keys.h"
#include "transport/sealed/record_reader.h"
#include "transport/sealed/sealer.h"
#include "transport/stream/byte_stream.h"

namespace byteps::sealed {

class Windows;

class SealedStream final : public ByteStream,
                           public ByteStream::User,
                           public std::enable_shared_from_this<SealedStream> {
 public:
  SealedStream(std::shared_ptr<ByteStream> below, const SessionKeys& keys);

  void open(EventLoop& loop, ByteStream::User& user) override;
  // Says goodbye, if the stream below takes it at once.
  void close() override;
  Moved read(const iovec* windows, size_t count) override;
  Moved write(const iovec* windows, size_t count) override;
  void wake_at(size_t bytes) override;
  void want_write(bool yes) override { below_->want_write(yes); }
  bool delivered() const override { return pending_.empty() && below_->delivered(); }
  bool has_unread() const override { return holds_news() || below_->has_unread(); }
  int64_t round_trip_ns() const override { return below_->round_trip_ns(); }
  bool same_machine() const override { return below_->same_machine(); }
  int64_t cut_for_ns(bool wanted, int64_t tolerated_ns, int64_t now) override {
    return below_->cut_for_ns(wanted, tolerated_ns, now);
  }

 private:
  struct Pending {
    size_t plain_bytes;
    size_t end;  // in out_
  };

  void on_ready(bool readable, bool writable) override;
  size_t read_records(const iovec* windows, size_t count);
  bool open_record(Windows& into, size_t& got);
  bool read_below();
  Moved ending();
  bool holds_news() const;
  bool seal_more(Windows& from);

  const std::shared_ptr<ByteStream> below_;
  EventLoop* loop_ = nullptr;
  ByteStream::User* user_ = nullptr;
  bool closed_ = false;

  Sealer sealer_;
  std::vector<std::byte> out_;  // sealed
  size_t sent_ = 0;             // of it, to the stream below
  std::deque<Pending> pending_;

  RecordReader reader_;
  std::vector<std::byte> opened_;  // of a record that did not fit into the windows
  size_t opened_at_ = 0;
  bool posted_ = false;
  bool ended_ = false;  // the stream below has
  std::string why_;
};

}  // namespace byteps::sealed
