// Every limit of the protocol, in one place. PROTOCOL.md repeats them in words.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byteps::limits {

// A partition is the unit of placement and of compression; a piece is the unit that travels and is summed.
// Small enough that a piece is still in the caches when it is added and sent on, large enough that waking up
// for it costs little: on one machine 384 KiB was the fastest of 64 to 512 KiB, with one and two workers on
// two cores. Between machines a piece must also be short on the link: it is what workers drift apart by, it
// is the least that waits in front of a server, and the first and the last of a round travel alone (ADR 10).
constexpr size_t kPieceBytes = 384 * 1024;
constexpr size_t kFarPieceBytes = 32 * 1024;
constexpr size_t kMinPieceBytes = 4096;
constexpr size_t kMaxPartitionBytes = size_t{1} << 30;
constexpr size_t kMaxTensorBytes = size_t{1} << 40;
constexpr uint32_t kMaxPieces = uint32_t{1} << 30;

// Payload of PUSH and RESULT of any tensor: a whole partition, compressed (dithering with many levels takes
// up to 22 bits for an element, and a few words). What a receiver takes is what the key allows, which it
// knows before it gives memory. A machine's sum of a half type travels as float32: twice a piece.
constexpr size_t kMaxPushBytes = kMaxPartitionBytes + (size_t{1} << 20);
constexpr size_t kMaxControlBytes = size_t{16} << 20;  // payload of handshake and control frames
constexpr size_t kMaxSmallBytes = 16 * 1024;           // payload of REFUSE, ERROR, STALL
constexpr size_t kMaxNameBytes = 4096;                 // a tensor's name
constexpr uint16_t kMaxChildren = 65535;

// A frame whose payload is at least this long is read straight to its destination; shorter ones are read
// many at a time into a buffer of kReadBufferBytes.
constexpr size_t kLargePayloadBytes = 16 * 1024;
constexpr size_t kReadBufferBytes = 64 * 1024;

// A piece of fewer bytes goes over the socket even where both ends can read each other's memory: reading
// memory costs two system calls, which is more than the copies it saves.
constexpr size_t kByAddressBytes = 16 * 1024;

// On one machine a window larger than this makes a transfer slower, not faster: what is in flight then no
// longer stays in the caches between sender and receiver.
constexpr size_t kNearbyWindowBytes = 2 * kPieceBytes;

// How long a server holds credit back for a contribution whose round is open, before it gives it on arrival:
// longer than the same piece may take from all workers through one slow link, and than what passes between
// processes of one machine.
constexpr int64_t kPatienceNs = 100'000'000;
constexpr int64_t kNearbyPatienceNs = 2'000'000;
// Between machines: how long a round is open before the server asks for what is missing.
constexpr int64_t kWantAfterNs = 10'000'000;

// Answers that may wait for a worker that does not read, beyond twice the bytes of the shard's keys.
constexpr size_t kAnswerBytes = size_t{16} << 20;

// One contribution of every open round is always kept: it becomes the sum. Others that come before their turn
// (sums are made in rank order) are kept up to this much per shard, or this share of its keys, whichever is
// more; beyond it, they are dropped and asked for again when their turn has come.
constexpr size_t kHeldBytes = size_t{8} << 20;
constexpr double kHeldShare = 0.10;

}  // namespace byteps::limits
