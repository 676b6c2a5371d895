#include "transport/sealed/sealer.h"

#include <cstring>

#include "base/crc32c.h"

namespace byteps::sealed {

void Sealer::seal(const iovec* plain, size_t count, size_t length, std::byte* out) {
  if (next_ > 0 && next_ % records_per_key_ == 0) aead_.next_key();
  RecordHeader header{next_, static_cast<uint32_t>(length), 0};
  header.check = crc32c(&header, offsetof(RecordHeader, check));
  std::memcpy(out, &header, kRecordHeaderBytes);
  // A number is spent before it is used: nothing that goes wrong below can make it come back.
  ++next_;
  aead_.seal(header.number, {out, kRecordHeaderBytes}, plain, count, out + kRecordHeaderBytes);
}

}  // namespace byteps::sealed
