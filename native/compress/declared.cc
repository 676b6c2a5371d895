#include "compress/declared.h"

namespace byteps::compress {

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

uint64_t stream_key(std::string_view name, uint32_t partition, const CodecSpec& spec, uint32_t sender) {
  const uint64_t key = mix64(name_hash(name) + partition);
  return spec.kind == CodecKind::randomk ? key : key ^ mix64(sender);
}

}  // namespace byteps::compress
