#include "transport/sim/sim_stream.h"

#include <algorithm>

namespace byteps::sim {
namespace {

constexpr const char* kLost = "connection lost";
constexpr const char* kReaderGone = "the other end has closed";

}  // namespace

void SimStream::open(EventLoop& loop, User& user) {
  loop_ = &loop;
  user_ = &user;
  in().tell_reader = [this] { look(); };
  out().tell_writer = [this] { look(); };
  look();
}

void SimStream::close() {
  if (std::exchange(closed_, true)) return;
  in().tell_reader = [] {};
  out().tell_writer = [] {};
  in().abandon();
  out().finish();
}

ByteStream::Moved SimStream::read(const iovec* windows, size_t count) {
  if (const size_t bytes = in().read(windows, count)) return {bytes};
  if (in().finish_has_come() && in().unread() == 0) return {0, true};
  if (wire_->lost()) return {0, true, kLost};
  return {};
}

ByteStream::Moved SimStream::write(const iovec* windows, size_t count) {
  if (wire_->lost()) return {0, true, kLost};
  if (out().reader_is_gone()) return {0, true, kReaderGone};
  return {out().write(windows, count)};
}

void SimStream::wake_at(size_t bytes) {
  wake_at_bytes_ = std::clamp<size_t>(bytes, 1, wire_->options().receive_bytes);
}

void SimStream::want_write(bool yes) {
  wants_write_ = yes;
  look();
}

bool SimStream::readable() const {
  return in().unread() >= wake_at_bytes_ || in().finish_has_come() || wire_->lost();
}

bool SimStream::writable() const {
  return wants_write_ && (out().room() > 0 || out().reader_is_gone() || wire_->lost());
}

void SimStream::look() {
  if (!loop_ || closed_ || posted_ || !(readable() || writable())) return;
  posted_ = true;
  loop_->post([self = weak_from_this()] {
    if (const auto stream = self.lock()) stream->tell_user();
  });
}

void SimStream::tell_user() {
  posted_ = false;
  if (closed_) return;
  user_->on_ready(readable(), writable());
  look();  // it may not have taken everything
}

int64_t SimStream::cut_for_ns(bool wanted, int64_t tolerated_ns, int64_t now) {
  if (!wanted) {
    watched_since_ns_ = EventLoop::kNever;
    return 0;
  }
  if (watched_since_ns_ == EventLoop::kNever) watched_since_ns_ = now;
  if (wire_->silent_since_ns() == EventLoop::kNever) return 0;
  const int64_t silent = now - std::max(watched_since_ns_, wire_->silent_since_ns());
  return silent >= tolerated_ns ? silent : 0;
}

}  // namespace byteps::sim
