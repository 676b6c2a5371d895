#include "bench/cipher_speed.h"

#include <ctime>
#include <vector>

#include "transport/sealed/record.h"

namespace byteps::bench {
namespace {

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

CipherSeconds cipher_seconds(sealed::Cipher cipher, size_t bytes) {
  using sealed::kRecordBytes;
  sealed::Aead aead(cipher, sealed::Key{});
  std::vector<std::byte> plain(kRecordBytes), record(kRecordBytes + sealed::kTagBytes);
  const std::byte clear[sealed::kRecordHeaderBytes]{};
  const iovec window{plain.data(), plain.size()};
  const size_t records = bytes / kRecordBytes + 1;
  CipherSeconds taken{};
  double began = processor_seconds();
  for (size_t i = 0; i < records; ++i) aead.seal(i, clear, &window, 1, record.data());
  taken.sealing = processor_seconds() - began;
  began = processor_seconds();
  for (size_t i = 0; i < records; ++i) aead.open(records - 1, clear, record, &window, 1);
  taken.opening = processor_seconds() - began;
  return taken;
}

}  // namespace byteps::bench
