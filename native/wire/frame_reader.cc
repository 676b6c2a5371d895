#include "wire/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/tuning.h"

namespace byteps {

int FrameReader::windows(iovec (&out)[2]) {
  if (!in_payload_) {
    const size_t room = expect_large_ ? kHeaderBytes - filled_ : buffer_.size() - filled_;
    out[0] = {buffer_.data() + filled_, room};
    return 1;
  }
  const size_t left = header_.length - done_;
  if (!landing_) {  // thrown away: the buffer is free, use it as the bin
    out[0] = {buffer_.data(), std::min(left, buffer_.size())};
    return 1;
  }
  out[0] = {landing_ + done_, left};
  // With the end of a large payload comes just the next header, so that the next payload can land in place.
  out[1] = {buffer_.data(), header_.length >= tuning::kLargePayloadBytes ? kHeaderBytes : buffer_.size()};
  return 2;
}

void FrameReader::received(size_t bytes) {
  if (in_payload_) {
    const size_t payload = std::min(bytes, header_.length - done_);
    done_ += payload;
    bytes -= payload;
    if (done_ < header_.length) return;
    finish();
  }
  filled_ += bytes;
  parse();
}

void FrameReader::parse() {
  size_t at = 0;
  while (!stopped_ && filled_ - at >= kHeaderBytes) {
    header_ = decode_header(HeaderBytes(buffer_.data() + at, kHeaderBytes), job_);
    if (header_.epoch != epoch_) {
      throw WireError(std::string(name_of(header_.type)) + ": from membership epoch " +
                      std::to_string(header_.epoch) + ", expected " + std::to_string(epoch_));
    }
    at += kHeaderBytes;
    landing_ = sink_.begin(header_);
    if (stopped_) return;
    in_payload_ = true;
    done_ = 0;
    at += take_payload(buffer_.data() + at, filled_ - at);
    if (done_ < header_.length) break;
    finish();
  }
  filled_ -= at;
  if (filled_ > 0 && at > 0) std::memmove(buffer_.data(), buffer_.data() + at, filled_);
}

size_t FrameReader::take_payload(const std::byte* bytes, size_t available) {
  const size_t n = std::min<size_t>(available, header_.length);
  if (landing_ && n > 0) std::memcpy(landing_, bytes, n);
  done_ = n;
  return n;
}

void FrameReader::finish() {
  in_payload_ = false;
  expect_large_ = header_.length >= tuning::kLargePayloadBytes;
  if (landing_ && (header_.flags & kFlagChecksum) &&
      crc32c(landing_, header_.length) != header_.payload_crc) {
    throw WireError(std::string(name_of(header_.type)) + ": payload checksum differs");
  }
  sink_.end(header_, landing_ != nullptr);
}

}  // namespace byteps
