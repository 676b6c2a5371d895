#include "transport/stream/stream_link.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/tuning.h"

namespace byteps {

StreamLink::StreamLink(std::shared_ptr<ByteStream> stream, const LinkOptions& options, FrameSource& source,
                       FrameSink& sink, Watcher& watcher)
    : stream_(std::move(stream)),
      options_(options),
      source_(source),
      watcher_(watcher),
      reader_(options.job, options.epoch, sink) {}

void StreamLink::close() {
  if (!std::exchange(alive_, false)) return;
  stream_->close();
  reader_.stop();
  if (!flushing_) batch_.clear();  // else a source is filling it right now
}

void StreamLink::give_up(End end, const char* why) noexcept {
  if (!alive()) return;
  close();
  std::string reason;
  try {
    reason = why;
  } catch (const std::bad_alloc&) {
  }
  watcher_.on_end(*this, end, reason);
}

void StreamLink::end(End end, const std::string& reason) {
  if (!alive()) return;  // closed by the callback that has failed
  close();
  watcher_.on_end(*this, end, reason);
}

void StreamLink::on_ready(bool readable, bool writable) {
  const auto self = shared_from_this();  // a callback may drop the owner's reference
  if (readable) receive();
  if (alive() && writable) flush();
}

void StreamLink::receive() {
  size_t budget = tuning::kReadBudgetBytes;
  while (alive() && budget > 0) {
    iovec windows[2];
    const auto count = static_cast<size_t>(reader_.windows(windows));
    size_t room = 0;
    for (size_t i = 0; i < count; ++i) room += windows[i].iov_len;
    const ByteStream::Moved read = stream_->read(windows, count);
    if (read.ended && read.why) return end(End::closed, read.why);
    if (read.ended) {
      return end(End::closed,
                 reader_.at_boundary() ? "connection closed" : "connection closed inside a frame");
    }
    if (read.bytes == 0) return stream_->wake_at(reader_.missing());
    traffic_.received_bytes += read.bytes;
    try {
      reader_.received(read.bytes);
    } catch (const WireError& error) {
      return end(End::violation, error.what());
    } catch (const PeerGone& gone) {
      return end(End::closed, gone.what());
    } catch (const std::bad_alloc& lack) {
      return give_up(End::exhausted, lack.what());
    }
    // A short read means that the stream is empty, and it tells when it is not.
    if (read.bytes < room) {
      if (alive()) stream_->wake_at(reader_.missing());
      return;
    }
    budget -= std::min(budget, read.bytes);
  }
}

void StreamLink::flush() {
  if (flushing_ || !alive()) return;  // a source may call back into us
  flushing_ = true;
  try {
    send();
  } catch (const std::bad_alloc& lack) {  // of a source that makes what it sends
    give_up(End::exhausted, lack.what());
  }
  flushing_ = false;
  if (!alive()) batch_.clear();
}

void StreamLink::send() {
  while (alive()) {
    if (batch_.empty() && !batch_.fill(source_, options_, [this] { return alive(); })) {
      if (alive()) stream_->want_write(false);
      return;
    }
    if (!alive()) return;
    iovec windows[OutBatch::kMaxWindows];
    const ByteStream::Moved written = stream_->write(windows, batch_.windows(windows));
    if (written.ended) return end(End::closed, written.why ? written.why : "connection closed");
    if (written.bytes == 0) return stream_->want_write(true);
    traffic_.sent_bytes += written.bytes;
    batch_.sent(written.bytes);
  }
}

void StreamLink::let_go(const std::byte* begin, const std::byte* end, BufferPool& pool) {
  if (!alive()) return;
  if (const std::byte* landing = reader_.landing(); landing && landing >= begin && landing < end) {
    reader_.abandon();
  }
  try {
    batch_.let_go(begin, end, pool);
  } catch (const std::bad_alloc& lack) {  // the frame cannot be finished, and so nothing can follow it
    give_up(End::exhausted, lack.what());
  }
}

void StreamLink::watch(bool wanted, int64_t now) {
  if (!alive() || options_.tolerated_ns == 0) return;
  if (const int64_t silent = stream_->cut_for_ns(wanted, options_.tolerated_ns, now); silent > 0) {
    end(End::unreachable, "nothing came through for " + seconds_text(silent) + " s");
  }
}

}  // namespace byteps
