#include "transport/stream/out_batch.h"

#include <cstring>

#include "base/crc32c.h"

namespace byteps {

void OutBatch::clear() {
  frames_.clear();
  at_ = 0;
  frame_at_ = 0;
}

void OutBatch::finish(OutFrame& frame, const LinkOptions& options) {
  Header& header = frame.header;
  header.job = options.job;
  header.epoch = options.epoch;
  if (options.checksum && header.length > 0) {
    header.flags |= kFlagChecksum;
    header.payload_crc = crc32c(frame.payload, header.length);
  }
  seal(header);
}

size_t OutBatch::windows(iovec (&out)[kMaxWindows]) const {
  size_t count = 0;
  size_t skip = frame_at_;
  for (size_t i = at_; i < frames_.size(); ++i) {
    const OutFrame& frame = frames_[i];
    auto add = [&](const void* data, size_t length) {
      if (skip >= length) {
        skip -= length;
        return;
      }
      out[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skip, length - skip};
      skip = 0;
    };
    add(&frame.header, kHeaderBytes);
    if (frame.header.length > 0) add(frame.payload, frame.header.length);
  }
  return count;
}

void OutBatch::sent(size_t bytes) {
  while (at_ < frames_.size()) {
    const size_t left = kHeaderBytes + frames_[at_].header.length - frame_at_;
    if (bytes < left) {
      frame_at_ += bytes;
      return;
    }
    bytes -= left;
    frame_at_ = 0;
    frames_[at_].keep.reset();
    ++at_;
  }
}

void OutBatch::let_go(const std::byte* begin, const std::byte* end, BufferPool& pool) {
  for (size_t i = at_; i < frames_.size(); ++i) {
    OutFrame& frame = frames_[i];
    if (!frame.payload || frame.payload < begin || frame.payload >= end) continue;
    frame.keep = pool.take(frame.header.length);
    std::memcpy(frame.keep.data(), frame.payload, frame.header.length);
    frame.payload = frame.keep.data();
  }
}

}  // namespace byteps
