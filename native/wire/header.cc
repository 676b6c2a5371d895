#include "wire/header.h"

#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "reduce/dtype.h"
#include "wire/limits.h"
#include "wire/offer.h"

namespace byteps {
namespace {

constexpr size_t kCheckedBytes = offsetof(Header, header_crc);
constexpr uint8_t kLastCodec = 7, kCustomCodec = 255;  // of CodecKind, compress/codec.h

size_t payload_limit(FrameType type) {
  switch (type) {
    case FrameType::hello:
    case FrameType::challenge:
    case FrameType::proof:
    case FrameType::welcome:
    case FrameType::reject:
    case FrameType::control:
      return limits::kMaxControlBytes;
    case FrameType::push:
    case FrameType::result:
      return limits::kMaxPushBytes;
    case FrameType::error:
    case FrameType::stall:
    case FrameType::refuse:
      return limits::kMaxSmallBytes;
    case FrameType::beat:
    case FrameType::credit:
    case FrameType::resend:
    case FrameType::want:
      return 0;
  }
  return 0;
}

}  // namespace

const char* name_of(FrameType type) {
  switch (type) {
    case FrameType::hello:
      return "HELLO";
    case FrameType::challenge:
      return "CHALLENGE";
    case FrameType::proof:
      return "PROOF";
    case FrameType::welcome:
      return "WELCOME";
    case FrameType::reject:
      return "REJECT";
    case FrameType::control:
      return "CONTROL";
    case FrameType::beat:
      return "BEAT";
    case FrameType::push:
      return "PUSH";
    case FrameType::result:
      return "RESULT";
    case FrameType::credit:
      return "CREDIT";
    case FrameType::resend:
      return "RESEND";
    case FrameType::error:
      return "ERROR";
    case FrameType::stall:
      return "STALL";
    case FrameType::refuse:
      return "REFUSE";
    case FrameType::want:
      return "WANT";
  }
  return nullptr;
}

void seal(Header& header) { header.header_crc = crc32c(&header, kCheckedBytes); }

std::string invalid(const Header& h, uint64_t job) {
  if (h.magic != kMagic) return "the first four bytes are not BPS2: not our protocol";
  // The version comes before the checksum: a later version may lay the rest out differently.
  if (h.version != kProtocolVersion) {
    return "protocol version " + std::to_string(h.version) + ", expected " +
           std::to_string(kProtocolVersion) + ": install the same byteps on all machines";
  }
  if (h.header_crc != crc32c(&h, kCheckedBytes)) return "header checksum differs";
  if (!name_of(h.type)) return "unknown frame type " + std::to_string(static_cast<int>(h.type));
  const std::string type = name_of(h.type);
  if (h.flags & ~kAllFlags) return type + ": reserved flags are set";
  if (h.codec != 0 && h.type != FrameType::push && h.type != FrameType::result) {
    return type + ": has no codec, and says " + std::to_string(h.codec);
  }
  if (h.codec > kLastCodec && h.codec != kCustomCodec)
    return type + ": unknown codec " + std::to_string(h.codec);
  if (!valid(h.dtype)) return type + ": unknown dtype " + std::to_string(h.dtype);
  if (!(h.flags & kFlagChecksum) && h.payload_crc != 0) return type + ": payload checksum without its flag";
  if (h.length > payload_limit(h.type)) {
    return type + ": payload of " + std::to_string(h.length) + " bytes, at most " +
           std::to_string(payload_limit(h.type));
  }
  if (h.flags & kFlagByAddress) {
    const bool push = h.type == FrameType::push;
    if (!push && h.type != FrameType::result) return type + ": cannot be by address";
    // An empty PUSH has nothing to offer, and asks for an answer by address.
    if (h.length != kOfferBytes && !(push && h.length == 0)) {
      return type + ": by address with a payload of " + std::to_string(h.length) + " bytes, expected " +
             std::to_string(kOfferBytes);
    }
  }
  if (job != 0 && h.job != job) return type + ": belongs to another job: check BYTEPS_JOB_ID";
  return {};
}

Header decode_header(HeaderBytes bytes, uint64_t job) {
  Header header;
  std::memcpy(&header, bytes.data(), kHeaderBytes);
  if (auto reason = invalid(header, job); !reason.empty()) throw WireError(reason);
  return header;
}

}  // namespace byteps
