// Any stream, cut anywhere: the reader refuses it or delivers frames, and never touches memory it should not.
//
// The first byte of the input chooses how the stream is cut. Every other input is repaired (magic, version,
// job, epoch and checksums are put right at each frame), so that the fuzzer gets past them to the rest.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "wire/frame_reader.h"
#include "wire/limits.h"
#include "wire/offer.h"

using namespace byteps;

namespace {

struct Sink : FrameSink {
  std::vector<std::byte> landing;
  std::byte* begin(const Header& header) override {
    landing.assign(header.length, std::byte{});
    return header.key & 1 ? nullptr : landing.data();
  }
  void end(const Header& header, bool) override {
    if (header.length > limits::kMaxControlBytes) __builtin_trap();
  }
};

void repair(std::vector<std::byte>& bytes) {
  for (size_t at = 0; at + kHeaderBytes <= bytes.size();) {
    Header header;
    std::memcpy(&header, bytes.data() + at, kHeaderBytes);
    header.magic = kMagic;
    header.version = kProtocolVersion;
    header.job = 1;
    header.epoch = 1;
    header.flags &= kAllFlags;
    header.length %= 300;
    if (header.flags & kFlagByAddress) header.length = kOfferBytes;
    if (!(header.flags & kFlagChecksum)) {
      header.payload_crc = 0;
    } else if (at + kHeaderBytes + header.length <= bytes.size()) {
      header.payload_crc = crc32c(bytes.data() + at + kHeaderBytes, header.length);
    }
    seal(header);
    std::memcpy(bytes.data() + at, &header, kHeaderBytes);
    at += kHeaderBytes + header.length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t step = data[0] % 90 + 1;
  std::vector<std::byte> stream(size - 2);
  if (size > 2) std::memcpy(stream.data(), data + 2, size - 2);
  if (data[1] % 2 == 0) repair(stream);
  Sink sink;
  FrameReader reader(1, 1, sink);
  try {
    for (size_t at = 0; at < stream.size();) {
      iovec windows[2];
      const int count = reader.windows(windows);
      size_t taken = 0;
      for (int i = 0; i < count; ++i) {
        const size_t n = std::min<size_t>({step - taken, windows[i].iov_len, stream.size() - at});
        std::memcpy(windows[i].iov_base, stream.data() + at, n);
        at += n;
        taken += n;
        if (n < windows[i].iov_len) break;
      }
      reader.received(taken);
    }
  } catch (const WireError&) {
  }
  return 0;
}
