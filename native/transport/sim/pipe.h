// One direction of a simulated connection: bounded buffers at both ends, and a way between them that takes
// time.
//
// All bytes lie in one queue; what has happened to them is a row of counts, each at most the one before:
//   written >= sent >= arrived >= read
// The writer hears of the last two a delay later (acked, freed). It may write while written - acked is less
// than its buffer, and bytes leave it while sent - freed is less than the reader's: a reader that does not
// read stops the writer.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transport/sim/network.h"

namespace byteps::sim {

class Pipe final : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(Network& network, const WireOptions& options) : network_(network), options_(options) {}

  // Called when something has changed for one of the ends.
  std::function<void()> tell_reader = [] {};
  std::function<void()> tell_writer = [] {};

  // The writer's end.
  size_t write(const iovec* windows, size_t count);
  size_t room() const { return options_.send_bytes - (written_ - acked_); }
  bool delivered() const { return acked_ == written_; }
  bool reader_is_gone() const { return reader_gone_; }
  int64_t round_trip_ns() const { return round_trip_ns_; }
  void finish();  // no more will be written: the reader hears of it when it has read everything

  // The reader's end.
  size_t read(const iovec* windows, size_t count);
  size_t unread() const { return arrived_ - read_; }
  bool finish_has_come() const { return finish_arrived_; }  // nothing follows what is unread
  void abandon();  // nothing more will be read: the writer hears of it

  // The way between them.
  void cut();   // nothing comes through any more
  void heal();  // what did not come through is sent again

 private:
  void pump();
  void send_segment(size_t bytes);
  void arrive(size_t bytes, int64_t sent_ns);
  void tell_read();
  size_t drawn(size_t most) { return options_.ragged && most > 1 ? 1 + network_.random(most) : most; }
  // Runs unless this object is gone or what was in flight is lost by then.
  void later(int64_t when_ns, std::function<void()> happens);

  Network& network_;
  const WireOptions options_;
  std::vector<std::byte> bytes_;  // from read_ to written_, after the first `front_`
  size_t front_ = 0;
  uint64_t written_ = 0, sent_ = 0, arrived_ = 0, read_ = 0;
  uint64_t acked_ = 0, freed_ = 0;  // arrived_ and read_, as far as the writer knows
  int64_t free_at_ns_ = 0;          // when the last segment has left the writer
  int64_t last_arrival_ns_ = 0;
  int64_t round_trip_ns_ = 0;
  uint64_t cuts_ = 0;
  bool silent_ = false;
  bool waiting_ = false;  // for free_at_ns_
  bool finish_ = false, finish_sent_ = false, finish_arrived_ = false;
  bool abandoned_ = false, reader_gone_ = false;
};

}  // namespace byteps::sim
