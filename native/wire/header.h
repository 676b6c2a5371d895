// The 64-byte header in front of every payload, on every connection: control, heartbeat and data.
//
// Little-endian, no padding, every byte accounted for. This file is the document of the layout; a reason is
// given for each field. protocol/PROTOCOL.md tells the same story in words and has example frames in hex.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/failure.h"

namespace byteps {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian and so is every host");

constexpr uint32_t kMagic =
    0x32535042;  // "BPS2" on the wire: an HTTP request or noise fails on the first word
constexpr uint8_t kProtocolVersion = 6;
constexpr size_t kHeaderBytes = 64;

// Gaps leave room within each group. A receiver refuses a type it does not know.
enum class FrameType : uint8_t {
  // Handshake, in Python, before a connection may carry anything else.
  hello = 1,
  challenge = 2,
  proof = 3,
  welcome = 4,
  reject = 5,
  // Control plane.
  control = 8,  // one msgpack message
  beat = 9,     // "I am alive", no payload
  // Data plane. What a tensor is and where it lives, the scheduler tells; 16 is not used any more.
  push = 17,    // worker: one contribution to one key and round
  result = 18,  // server: the result of one key and round
  credit = 19,  // server: nothing but the `received` field
  resend = 20,  // server: your contribution to this key and round was not kept, send it again
  error = 21,   // server: this key and round cannot be completed; the payload says why
  stall = 22,   // server: this key and round has been waiting long; the payload lists who is missing
  refuse = 23,  // worker: its machine has no contribution to this key and round; the payload says why
  want = 24,    // server: others have contributed to this key and round: push yours next, if you have it
};

enum Flag : uint16_t {
  kFlagAverage = 1 << 0,     // PUSH: divide the sum by the number of ranks in the job
  kFlagBroadcast = 1 << 1,   // PUSH: the result is the contribution of child `detail`; the others' are empty
  kFlagChecksum = 1 << 2,    // payload_crc is set
  kFlagWantCredit = 1 << 3,  // PUSH: answer soon with `received`: more than half of the window is used
  kFlagByAddress = 1
      << 4,  // PUSH, RESULT: the payload is an Offer (wire/offer.h); PUSH: the answer may be one
  kAllFlags = (1 << 5) - 1,  // the others are reserved and must be zero
};

// `detail` of an ERROR frame: a FailureKind in the low byte; above it, for `lost`, the rank of the worker.
// These four travel, and their numbers never change.
constexpr uint32_t kErrorRankShift = 8;
static_assert(static_cast<int>(FailureKind::lost) == 1 && static_cast<int>(FailureKind::conflict) == 2);
static_assert(static_cast<int>(FailureKind::protocol) == 3 && static_cast<int>(FailureKind::memory) == 4);
// A number that is none of them is a protocol error itself.
constexpr FailureKind kind_in(uint32_t detail) {
  const uint32_t kind = detail & ((1u << kErrorRankShift) - 1);
  return kind >= 1 && kind <= 4 ? static_cast<FailureKind>(kind) : FailureKind::protocol;
}

struct Header {
  uint32_t magic = kMagic;
  uint8_t version = kProtocolVersion;  // another version is refused in the handshake with both numbers
  FrameType type{};
  uint16_t flags = 0;
  uint64_t job = 0;     // hash of the job id: a frame that strays between two jobs is refused
  uint32_t epoch = 0;   // membership epoch: a frame from before a change of members is refused
  uint16_t sender = 0;  // rank of the sender among its kind
  uint8_t dtype = 0;    // of the payload's elements (PUSH, RESULT)
  uint8_t codec = 0;    // 0: the payload is plain elements; else a CodecKind (compress/codec.h)
  uint64_t key = 0;     // tensor id << 32 | index of the piece
  uint32_t round =
      0;  // how often this key has been used before: a fast worker cannot touch a slow one's round
  uint32_t length = 0;   // bytes of payload that follow, on the socket: those of an Offer if kFlagByAddress
  int32_t priority = 0;  // larger is more urgent
  uint32_t payload_crc = 0;  // CRC32C of the payload if kFlagChecksum, else zero
  uint64_t received = 0;     // server: bytes of contributions on this connection that are done with; returns
                             // credit. PUSH with a codec: CodecTerms. PUSH otherwise: zero
  uint32_t detail = 0;       // PUSH with kFlagBroadcast: the root child; ERROR: FailureKind and rank; PUSH
                             // and RESULT with a codec and by address: bytes of the payload; else zero
  uint32_t header_crc = 0;   // CRC32C of the 60 bytes before it
};

static_assert(sizeof(Header) == kHeaderBytes);
static_assert(offsetof(Header, magic) == 0 && offsetof(Header, version) == 4 && offsetof(Header, type) == 5);
static_assert(offsetof(Header, flags) == 6 && offsetof(Header, job) == 8 && offsetof(Header, epoch) == 16);
static_assert(offsetof(Header, sender) == 20 && offsetof(Header, dtype) == 22 &&
              offsetof(Header, codec) == 23);
static_assert(offsetof(Header, key) == 24 && offsetof(Header, round) == 32 && offsetof(Header, length) == 36);
static_assert(offsetof(Header, priority) == 40 && offsetof(Header, payload_crc) == 44);
static_assert(offsetof(Header, received) == 48 && offsetof(Header, detail) == 56);
static_assert(offsetof(Header, header_crc) == 60);

// What a PUSH with a codec says beside its payload.
struct CodecTerms {
  uint32_t step = 0;  // what random numbers are drawn for; the round, unless a checkpoint was restored
  float lr = 0;       // the learning rate; 0: unknown

  uint64_t word() const { return uint64_t{std::bit_cast<uint32_t>(lr)} << 32 | step; }
  static CodecTerms of(uint64_t word) {
    return {static_cast<uint32_t>(word), std::bit_cast<float>(static_cast<uint32_t>(word >> 32))};
  }
};

using HeaderBytes = std::span<const std::byte, kHeaderBytes>;

// Sets header_crc; call it last.
void seal(Header& header);

// Names the broken rule, or is empty. `job` 0 accepts every job: the acceptor of a connection tells the
// stranger which job it wanted only after it has read its HELLO.
std::string invalid(const Header& header, uint64_t job);

// Copies, checks, throws WireError with the broken rule.
Header decode_header(HeaderBytes bytes, uint64_t job);

const char* name_of(FrameType type);

constexpr uint64_t make_key(uint32_t tensor, uint32_t piece) { return uint64_t{tensor} << 32 | piece; }
constexpr uint32_t tensor_of(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
constexpr uint32_t piece_of(uint64_t key) { return static_cast<uint32_t>(key); }

}  // namespace byteps
