#include "transport/sim/pipe.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace byteps::sim {

void Pipe::later(int64_t when_ns, std::function<void()> happens) {
  network_.at(when_ns, [self = weak_from_this(), cuts = cuts_, happens = std::move(happens)] {
    const auto pipe = self.lock();
    if (pipe && pipe->cuts_ == cuts) happens();
  });
}

// ---- writing

size_t Pipe::write(const iovec* windows, size_t count) {
  size_t left = room() > 0 ? drawn(room()) : 0;
  const size_t before = left;
  for (size_t i = 0; i < count && left > 0; ++i) {
    const auto* from = static_cast<const std::byte*>(windows[i].iov_base);
    const size_t n = std::min(left, windows[i].iov_len);
    bytes_.insert(bytes_.end(), from, from + n);
    left -= n;
  }
  written_ += before - left;
  pump();
  return before - left;
}

void Pipe::finish() {
  finish_ = true;
  pump();
}

void Pipe::pump() {
  if (silent_ || waiting_) return;
  while (sent_ < written_) {
    const size_t open = options_.receive_bytes - (sent_ - freed_);
    const size_t bytes = std::min<size_t>({written_ - sent_, open, options_.segment_bytes});
    if (bytes == 0) return;  // the reader is behind
    send_segment(drawn(bytes));
    if (free_at_ns_ <= network_.now_ns()) continue;
    waiting_ = true;
    return later(free_at_ns_, [this] {
      waiting_ = false;
      pump();
    });
  }
  if (finish_ && !std::exchange(finish_sent_, true)) send_segment(0);
}

// No bytes: the end.
void Pipe::send_segment(size_t bytes) {
  const int64_t now = network_.now_ns();
  sent_ += bytes;
  if (options_.bytes_per_s > 0) {
    free_at_ns_ =
        std::max(now, free_at_ns_) + seconds_to_ns(static_cast<double>(bytes) / options_.bytes_per_s);
  } else {
    free_at_ns_ = now;
  }
  int64_t arrival = free_at_ns_ + options_.delay_ns;
  if (options_.jitter_ns > 0) arrival += network_.random(static_cast<uint64_t>(options_.jitter_ns) + 1);
  last_arrival_ns_ = std::max(arrival, last_arrival_ns_);
  later(last_arrival_ns_, [this, bytes, now] { arrive(bytes, now); });
}

void Pipe::arrive(size_t bytes, int64_t sent_ns) {
  if (bytes == 0) finish_arrived_ = true;
  arrived_ += bytes;
  later(network_.now_ns() + options_.delay_ns, [this, arrived = arrived_, sent_ns] {
    const int64_t took = std::max<int64_t>(network_.now_ns() - sent_ns, 1);
    round_trip_ns_ = round_trip_ns_ > 0 ? std::min(round_trip_ns_, took) : took;
    acked_ = std::max(acked_, arrived);
    tell_writer();
  });
  if (abandoned_) {
    read_ = arrived_;
    tell_read();
  }
  tell_reader();
}

// ---- reading

size_t Pipe::read(const iovec* windows, size_t count) {
  size_t left = unread() > 0 ? drawn(unread()) : 0;
  const size_t before = left;
  for (size_t i = 0; i < count && left > 0; ++i) {
    const size_t n = std::min(left, windows[i].iov_len);
    std::memcpy(windows[i].iov_base, bytes_.data() + front_, n);
    front_ += n;
    left -= n;
  }
  if (before == left) return 0;
  if (2 * front_ > bytes_.size()) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(front_));
    front_ = 0;
  }
  read_ += before - left;
  tell_read();
  return before - left;
}

void Pipe::tell_read() {
  later(network_.now_ns() + options_.delay_ns, [this, read = read_] {
    freed_ = std::max(freed_, read);
    pump();
  });
}

void Pipe::abandon() {
  abandoned_ = true;
  later(network_.now_ns() + options_.delay_ns, [this] {
    reader_gone_ = true;
    tell_writer();
  });
}

// ---- the way between them

void Pipe::cut() {
  silent_ = true;
  ++cuts_;
}

void Pipe::heal() {
  if (!std::exchange(silent_, false)) return;
  sent_ = acked_ = arrived_;
  freed_ = read_;
  waiting_ = false;
  finish_sent_ = finish_arrived_;
  tell_writer();
  pump();
  if (abandoned_) abandon();
}

}  // namespace byteps::sim
