// Frames taken from a source and not fully sent: many small ones go out in one call.
#pragma once

#include <sys/uio.h>

#include <vector>

#include "base/tuning.h"
#include "transport/link.h"

namespace byteps {

class OutBatch {
 public:
  static constexpr size_t kMaxWindows = 2 * tuning::kBatchFrames;

  OutBatch() { frames_.reserve(tuning::kBatchFrames); }

  bool empty() const { return at_ == frames_.size(); }
  void clear();
  // When it is empty: takes frames from the source, as many as one call may carry, and seals them. Stops when
  // `wanted` says that they are not wanted any more. False: there are none.
  template <class Wanted>
  bool fill(FrameSource& source, const LinkOptions& options, Wanted wanted) {
    clear();
    size_t bytes = 0;
    while (frames_.size() < tuning::kBatchFrames && bytes < tuning::kBatchBytes) {
      OutFrame& frame = frames_.emplace_back();
      if (!source.next(frame) || !wanted()) {
        frames_.pop_back();
        break;
      }
      finish(frame, options);
      bytes += kHeaderBytes + frame.header.length;
    }
    return !frames_.empty();
  }
  // What is still to be sent; returns how many windows it fills in.
  size_t windows(iovec (&out)[kMaxWindows]) const;
  void sent(size_t bytes);
  // Copies what lies in [begin, end) and is still to be sent into the pool. Throws std::bad_alloc.
  void let_go(const std::byte* begin, const std::byte* end, BufferPool& pool);

 private:
  static void finish(OutFrame& frame, const LinkOptions& options);

  std::vector<OutFrame> frames_;
  size_t at_ = 0;        // first frame that is not fully sent
  size_t frame_at_ = 0;  // bytes of that frame already sent
};

}  // namespace byteps
