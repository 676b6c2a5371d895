// Makes the records of one direction.
#pragma once

#include "transport/sealed/aead.h"
#include "transport/sealed/record.h"

namespace byteps::sealed {

class Sealer {
 public:
  Sealer(Cipher cipher, const Key& key, uint64_t records_per_key = kRecordsPerKey)
      : aead_(cipher, key), records_per_key_(records_per_key) {}

  // Seals `length` bytes, at most kRecordBytes and as many as `plain` has, into `length + kRecordExtraBytes`.
  void seal(const iovec* plain, size_t count, size_t length, std::byte* out);
  uint64_t sealed() const { return next_; }

 private:
  Aead aead_;
  const uint64_t records_per_key_;
  uint64_t next_ = 0;
};

}  // namespace byteps::sealed
