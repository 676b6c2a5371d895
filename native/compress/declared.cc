#include "compress/declared.h"

#include "base/error.h"

namespace byteps::compress {
namespace {

enum Flag : uint8_t { kScaling = 1, kL2 = 2, kNatural = 4, kHalves = 8, kAllFlags = 15 };

}  // namespace

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

CodecFields to_fields(const DeclaredCodec& codec) {
  const CodecSpec& spec = codec.spec;
  CodecFields fields;
  fields.kind = static_cast<uint8_t>(spec.kind);
  fields.flags = static_cast<uint8_t>((spec.scaling ? kScaling : 0) | (spec.l2 ? kL2 : 0) |
                                      (spec.natural ? kNatural : 0) | (spec.halves ? kHalves : 0));
  fields.feedback = static_cast<uint8_t>(codec.feedback);
  fields.k = spec.k;
  fields.seed = codec.seed;
  fields.text = spec.text;
  return fields;
}

DeclaredCodec from_fields(const CodecFields& fields) {
  const bool known = (fields.kind >= 1 && fields.kind <= static_cast<uint8_t>(CodecKind::fp16)) ||
                     fields.kind == static_cast<uint8_t>(CodecKind::custom);
  if (!known) throw WireError("DECLARE: unknown codec " + std::to_string(fields.kind));
  if (fields.flags & ~kAllFlags) throw WireError("DECLARE: reserved flags of the codec are set");
  if (fields.feedback > static_cast<uint8_t>(Feedback::sparse)) {
    throw WireError("DECLARE: unknown error feedback " + std::to_string(fields.feedback));
  }
  DeclaredCodec codec;
  codec.feedback = static_cast<Feedback>(fields.feedback);
  codec.seed = fields.seed;
  codec.spec.kind = static_cast<CodecKind>(fields.kind);
  codec.spec.k = fields.k;
  codec.spec.scaling = fields.flags & kScaling;
  codec.spec.l2 = fields.flags & kL2;
  codec.spec.natural = fields.flags & kNatural;
  codec.spec.halves = fields.flags & kHalves;
  codec.spec.feedback = codec.feedback != Feedback::none;
  codec.spec.text = fields.text;
  return codec;
}

uint64_t stream_key(std::string_view name, uint32_t partition, const CodecSpec& spec, uint32_t sender) {
  const uint64_t key = mix64(name_hash(name) + partition);
  return spec.kind == CodecKind::randomk ? key : key ^ mix64(sender);
}

}  // namespace byteps::compress
