// The records of a sealed connection. PROTOCOL.md, section "Sealed connections", says the same in words.
//
// A stream is cut into records, each with a header of 16 bytes in the clear, what was sealed, and a tag of 16
// bytes. The header is authenticated with the rest. Records are numbered from 0 in each direction, and each
// direction has its own key, so the number is a nonce that never comes back. It is written into the header,
// though both ends can count, because it lets the receiver tell what happened to a record that does not fit.
// `check` finds an accident in the header at once; without it, a wrong length would be waited for.
//
// A record without bytes is the last one: it says that the connection ends here because its owner wants it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byteps::sealed {

struct RecordHeader {
  uint64_t number;  // from 0
  uint32_t length;  // of what was sealed; 0: goodbye
  uint32_t check;   // CRC32C of the 12 bytes before
};
static_assert(sizeof(RecordHeader) == 16);

constexpr size_t kRecordHeaderBytes = sizeof(RecordHeader);
constexpr size_t kRecordExtraBytes = kRecordHeaderBytes + 16;  // with the tag
// A record is opened as a whole: short enough to lie in the caches then, long enough that what a record costs
// by itself is little.
constexpr size_t kRecordBytes = 64 * 1024;
// Then comes the next key: far below the bytes that one key of AES-GCM is good for (2^32 blocks of 2^34.5).
constexpr uint64_t kRecordsPerKey = uint64_t{1} << 20;

}  // namespace byteps::sealed
