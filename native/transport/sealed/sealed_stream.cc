#include "transport/sealed/sealed_stream.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/tuning.h"
#include "transport/sealed/windows.h"

namespace byteps::sealed {
namespace {

// Sealed at a time and given to the stream below in one call: it stays in the caches in between.
constexpr size_t kOutBytes = 2 * kRecordBytes;
constexpr size_t kMaxWindows = 128;

constexpr const char* kTruncated =
    "truncated: closed without the sealed goodbye; it was cut on the way, or the process at the other end "
    "has ended";
constexpr const char* kTruncatedInside =
    "connection closed inside a frame: truncated, it was cut on the way, or the process at the other end has "
    "ended";

}  // namespace

SealedStream::SealedStream(std::shared_ptr<ByteStream> below, const SessionKeys& keys)
    : below_(std::move(below)),
      sealer_(keys.cipher, keys.sending),
      reader_(keys.cipher, keys.receiving, keys.sending) {}

void SealedStream::open(EventLoop& loop, ByteStream::User& user) {
  loop_ = &loop;
  user_ = &user;
  below_->open(loop, *this);
}

void SealedStream::close() {
  if (std::exchange(closed_, true)) return;
  if (pending_.empty() && !ended_ && reader_.state() != RecordReader::State::broken) {
    std::byte goodbye[kRecordExtraBytes];
    sealer_.seal(nullptr, 0, 0, goodbye);
    const iovec window{goodbye, sizeof goodbye};
    below_->write(&window, 1);
  }
  below_->close();
}

void SealedStream::on_ready(bool readable, bool writable) {
  const auto self = shared_from_this();  // the user may drop its reference
  user_->on_ready(readable, writable);
  // What was read from below and not by the user: nobody else tells of it.
  if (closed_ || posted_ || !holds_news()) return;
  posted_ = true;
  loop_->post([weak = weak_from_this()] {
    const auto stream = weak.lock();
    if (!stream || stream->closed_) return;
    stream->posted_ = false;
    stream->on_ready(true, false);
  });
}

// ---- reading

bool SealedStream::holds_news() const {
  return opened_at_ < opened_.size() || reader_.state() != RecordReader::State::partial || ended_;
}

ByteStream::Moved SealedStream::read(const iovec* windows, size_t count) {
  try {
    if (const size_t got = read_records(windows, count)) return {got};
  } catch (const std::bad_alloc&) {
    return {0, true, "there is no memory for a sealed record"};
  }
  return ending();
}

size_t SealedStream::read_records(const iovec* windows, size_t count) {
  Windows into(windows, count);
  size_t got = 0;
  bool more = true;  // the stream below may have some
  while (!into.empty()) {
    if (opened_at_ < opened_.size()) {
      const iovec window = into.current();
      const size_t n = std::min(window.iov_len, opened_.size() - opened_at_);
      std::memcpy(window.iov_base, opened_.data() + opened_at_, n);
      opened_at_ += n;
      got += n;
      into.skip(n);
    } else if (reader_.state() == RecordReader::State::record) {
      if (!open_record(into, got)) break;
    } else if (!more || ended_ || reader_.state() != RecordReader::State::partial) {
      break;
    } else {
      more = read_below();
    }
  }
  return got;
}

// Straight into the windows if it fits, which it does where a payload lands.
bool SealedStream::open_record(Windows& into, size_t& got) {
  const size_t length = reader_.length();
  iovec parts[kMaxWindows];
  Windows ahead = into;
  const size_t count = ahead.take(length, parts, kMaxWindows);
  if (total_bytes(parts, count) == length) {
    if (!reader_.open(parts, count)) return false;
    into = ahead;
    got += length;
    return true;
  }
  opened_.resize(length);
  opened_at_ = length;
  const iovec aside{opened_.data(), length};
  if (!reader_.open(&aside, 1)) return false;
  opened_at_ = 0;
  return true;
}

bool SealedStream::read_below() {
  const auto room = reader_.room();
  const iovec window{room.data(), room.size()};
  const Moved moved = below_->read(&window, 1);
  if (moved.ended) {
    ended_ = true;
    if (moved.why) {
      why_ = moved.why;
    } else {
      why_ = reader_.at_boundary() ? kTruncated : kTruncatedInside;
    }
    return false;
  }
  if (moved.bytes > 0) reader_.received(moved.bytes);
  return moved.bytes == room.size();
}

// There is nothing to give out: because it is over, or not yet.
ByteStream::Moved SealedStream::ending() {
  switch (reader_.state()) {
    case RecordReader::State::broken:
      return {0, true, reader_.reason().c_str()};
    case RecordReader::State::goodbye:
      return {0, true};
    default:
      return ended_ ? Moved{0, true, why_.c_str()} : Moved{};
  }
}

// So many bytes must come before so many are open, and no record opens before it is whole.
void SealedStream::wake_at(size_t bytes) {
  const size_t here = reader_.partial_bytes();
  below_->wake_at(std::max(reader_.missing(), bytes > here ? bytes - here : 1));
}

// ---- writing

ByteStream::Moved SealedStream::write(const iovec* windows, size_t count) {
  Windows from(windows, count);
  for (const Pending& record : pending_) from.skip(record.plain_bytes);
  size_t taken = 0;
  while (!pending_.empty() || seal_more(from)) {
    const iovec window{out_.data() + sent_, pending_.back().end - sent_};
    const Moved moved = below_->write(&window, 1);
    if (moved.ended) return moved;
    sent_ += moved.bytes;
    while (!pending_.empty() && pending_.front().end <= sent_) {
      taken += pending_.front().plain_bytes;
      pending_.pop_front();
    }
    if (moved.bytes < window.iov_len) break;
  }
  return {taken};
}

bool SealedStream::seal_more(Windows& from) {
  sent_ = 0;
  size_t end = 0;
  while (!from.empty() && end < kOutBytes) {
    // A large payload begins a record of its own, so that it can be opened right where it belongs.
    const auto is_large = [&] {
      return from.untouched() && from.current().iov_len >= tuning::kLargePayloadBytes;
    };
    iovec parts[kMaxWindows];
    size_t count = 0, length = 0;
    if (from.current().iov_len >= tuning::kLargePayloadBytes) {
      count = from.take(std::min(from.current().iov_len, kRecordBytes), parts, 1);
      length = parts[0].iov_len;
    } else {
      while (!from.empty() && !is_large() && count < kMaxWindows && length < kRecordBytes) {
        count += from.take(std::min(from.current().iov_len, kRecordBytes - length), parts + count, 1);
        length += parts[count - 1].iov_len;
      }
    }
    if (out_.size() < end + length + kRecordExtraBytes) out_.resize(end + length + kRecordExtraBytes);
    sealer_.seal(parts, count, length, out_.data() + end);
    end += length + kRecordExtraBytes;
    pending_.push_back({length, end});
  }
  return !pending_.empty();
}

}  // namespace byteps::sealed
