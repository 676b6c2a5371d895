// Every limit of the protocol, in one place: bytes beyond them are refused. PROTOCOL.md repeats them in
// words. What tunes speed is in base/tuning.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byteps::limits {

// A partition is the unit of placement and of compression; a piece is the unit that travels and is summed
// (base/tuning.h says how long one is).
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

// Answers that may wait for a worker that does not read, beyond twice the bytes of the shard's keys.
constexpr size_t kAnswerBytes = size_t{16} << 20;

}  // namespace byteps::limits
