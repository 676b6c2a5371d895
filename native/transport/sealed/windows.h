// A walk over windows of memory.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>

namespace byteps::sealed {

class Windows {
 public:
  Windows(const iovec* windows, size_t count) : at_(windows), end_(windows + count) { skip_empty(); }

  bool empty() const { return at_ == end_; }
  // What is left of the window at hand, and whether none of it has been taken.
  iovec current() const { return {static_cast<char*>(at_->iov_base) + done_, at_->iov_len - done_}; }
  bool untouched() const { return done_ == 0; }
  void skip(size_t bytes) {
    while (bytes > 0 && !empty()) {
      const size_t n = std::min(bytes, at_->iov_len - done_);
      bytes -= n;
      done_ += n;
      skip_empty();
    }
  }
  // Takes windows of `bytes` in all, or of all that is left, at most `most` of them. Returns how many.
  size_t take(size_t bytes, iovec* out, size_t most) {
    size_t count = 0;
    while (bytes > 0 && !empty() && count < most) {
      iovec part = current();
      part.iov_len = std::min(part.iov_len, bytes);
      out[count++] = part;
      bytes -= part.iov_len;
      skip(part.iov_len);
    }
    return count;
  }

 private:
  void skip_empty() {
    while (at_ != end_ && done_ == at_->iov_len) {
      ++at_;
      done_ = 0;
    }
  }

  const iovec* at_;
  const iovec* end_;
  size_t done_ = 0;  // of the window at hand
};

inline size_t total_bytes(const iovec* windows, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += windows[i].iov_len;
  return bytes;
}

}  // namespace byteps::sealed
