// Partitions of a tensor with a codec: compressed before they are sent, decompressed when they have landed.
//
// Both is done by the pool of codecs (codec_pool.h) or, if it has no threads, by the thread of the link when
// a piece is next and when it has landed.
#pragma once

#include "worker/codec_pool.h"
#include "worker/payload.h"

namespace byteps {

class IoThread;

class CompressedPayload final : public Payload {
 public:
  explicit CompressedPayload(IoThread& thread) : thread_(thread) {}

  SendOrder::Readiness begin(Route& route) override;
  uint32_t wire_bytes(const Route& route, uint32_t position) const override;
  bool prepare(Route& route, uint32_t position) override;
  std::optional<Elements> fill(OutFrame& out, Route& route, uint32_t position) override;
  std::byte* landing(const Header& header, const Route& route, uint32_t position) override;
  std::optional<uint32_t> landed(const Header& header, Route& route, uint32_t position) override;
  void visit_memory(const Route& route, const Visit& visit) const override;

  // A thread of the pool.
  CodecOutcome run(const CodecJob& job);

 private:
  // False: the operation has failed.
  bool encode(Route& route, uint32_t position);
  void decode(Route& route, uint32_t position, uint32_t bytes);

  IoThread& thread_;
};

}  // namespace byteps
