#include "worker/compressed_payload.h"

#include "base/error.h"
#include "local/group.h"
#include "observe/ring.h"
#include "worker/client.h"
#include "worker/io_thread.h"

namespace byteps {
namespace {

PartitionCodec& partition_of(const Route& route, uint32_t position) {
  return *route.tensor->codec->of(route.pieces[position]);
}

}  // namespace

SendOrder::Readiness CompressedPayload::begin(Route& route) {
  route.in_step = false;
  if (thread_.client().codecs().threads() == 0) return SendOrder::Readiness::on_demand;
  for (uint32_t at = 0; at < route.pieces.size(); ++at) {
    thread_.post_job(route.op->priority, {CodecJob::Kind::encode, &route, at});
  }
  return SendOrder::Readiness::one_by_one;
}

uint32_t CompressedPayload::wire_bytes(const Route& route, uint32_t position) const {
  return partition_of(route, position).payload_bytes;
}

bool CompressedPayload::prepare(Route& route, uint32_t position) {
  if (!route.why_refused().empty()) return true;
  try {
    return encode(route, position);
  } catch (const std::exception& error) {
    route.refusal = route.tensor->name + ": " + error.what();
    return true;
  }
}

std::optional<Payload::Elements> CompressedPayload::fill(OutFrame& out, Route& route, uint32_t position) {
  const Tensor& tensor = *route.tensor;
  const uint32_t piece = route.pieces[position];
  const PartitionCodec& partition = partition_of(route, position);
  out.payload = partition.payload.data();
  out.header.length = partition.payload_bytes;
  out.header.dtype = static_cast<uint8_t>(tensor.dtype);
  out.header.codec = tensor.codec->kind();
  out.header.received = route.op->coding->terms.word();
  return Elements{route.pushed_memory() + tensor.cut.offset_of(piece), tensor.cut.length_of(piece),
                  tensor.dtype};
}

// Plain elements are what servers of asynchronous training send.
std::byte* CompressedPayload::landing(const Header& header, const Route& route, uint32_t position) {
  if (header.codec == 0) return Payload::landing(header, route, position);
  PartitionCodec& partition = partition_of(route, position);
  const size_t room = header.codec == route.tensor->codec->kind() ? partition.landing.size() : 0;
  if (header.length == 0 || header.length > room) {
    throw WireError("RESULT: " + route.tensor->name + ": " + std::to_string(header.length) +
                    " bytes of codec " + std::to_string(header.codec) + ", expected at most " +
                    std::to_string(room));
  }
  return partition.landing.data();
}

std::optional<uint32_t> CompressedPayload::landed(const Header& header, Route& route, uint32_t position) {
  if (header.codec == 0) return Payload::landed(header, route, position);
  if (thread_.client().codecs().threads() == 0) {
    decode(route, position, header.length);
    return header.length;
  }
  thread_.post_job(route.op->priority, {CodecJob::Kind::decode, &route, position, header.length});
  return {};
}

void CompressedPayload::visit_memory(const Route& route, const Visit& visit) const {
  Payload::visit_memory(route, visit);
  for (uint32_t at = 0; at < route.pieces.size(); ++at) {
    const PartitionCodec& partition = partition_of(route, at);
    for (const auto* memory : {&partition.payload, &partition.landing}) visit(memory->data(), memory->size());
  }
}

bool CompressedPayload::encode(Route& route, uint32_t position) {
  const Timed timed(route.tensor->client.clock(), Stage::encoded,
                    make_key(route.tensor->id, route.pieces[position]), route.op->round);
  const Tensor& tensor = *route.tensor;
  Operation& op = *route.op;
  const uint32_t piece = route.pieces[position];
  PartitionCodec& partition = partition_of(route, position);
  const float scale =
      op.flags & kFlagAverage ? 1.0f / static_cast<float>(thread_.client().rank_count()) : 1.0f;
  if (tensor.group && is_half(tensor.dtype)) {
    float* sum = TensorCodec::scratch(partition.elements);
    if (!tensor.group->gather_wide(op, piece, sum)) return false;
    tensor.codec->encode_wide(partition, sum, scale, *op.coding);
    return true;
  }
  if (tensor.group && !tensor.group->gather(op, piece)) return false;
  tensor.codec->encode(partition, tensor.dtype, route.pushed_memory() + tensor.cut.offset_of(piece), scale,
                       *op.coding);
  return true;
}

void CompressedPayload::decode(Route& route, uint32_t position, uint32_t bytes) {
  const Timed timed(route.tensor->client.clock(), Stage::decoded,
                    make_key(route.tensor->id, route.pieces[position]), route.op->round);
  const Tensor& tensor = *route.tensor;
  tensor.codec->decode(partition_of(route, position), tensor.dtype, bytes, route.op->coding->terms.step,
                       route.op->landing() + tensor.cut.offset_of(route.pieces[position]));
}

CodecOutcome CompressedPayload::run(const CodecJob& job) {
  CodecOutcome outcome{job};
  try {
    if (job.kind == CodecJob::Kind::decode) {
      decode(*job.route, job.position, job.bytes);
    } else if (LocalGroup* group = job.route->tensor->group;
               !group || group->disagreement(*job.route->op).empty()) {
      if (!encode(*job.route, job.position)) outcome.end = CodecOutcome::End::operation_failed;
    }
  } catch (const std::exception& error) {
    outcome.end = CodecOutcome::End::codec_failed;
    try {
      outcome.error = error.what();
    } catch (const std::bad_alloc&) {  // that it failed is said all the same
    }
  }
  return outcome;
}

}  // namespace byteps
