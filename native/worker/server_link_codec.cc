// What a ServerLink does for tensors with a codec: compress before sending, decompress what has landed.
#include <cstring>

#include "base/error.h"
#include "local/group.h"
#include "worker/client.h"
#include "worker/io_thread.h"
#include "worker/server_link.h"

namespace byteps {

// Why this rank has nothing to push of an operation, if so.
std::string ServerLink::refusal(const Route& route) const {
  if (!route.refusal.empty()) return route.refusal;
  return route.tensor->group ? route.tensor->group->disagreement(*route.op) : std::string();
}

// Without a pool a piece is compressed when it is about to be sent.
bool ServerLink::prepare(Route& route, uint32_t position) {
  if (!refusal(route).empty()) return true;
  try {
    return encode(route, position);
  } catch (const std::exception& error) {
    route.refusal = route.tensor->name + ": " + error.what();
    return true;
  }
}

bool ServerLink::encode(Route& route, uint32_t position) {
  const Tensor& tensor = *route.tensor;
  Operation& op = *route.op;
  const uint32_t piece = route.pieces[position];
  PartitionCodec& partition = *tensor.codec->of(piece);
  const float scale =
      op.flags & kFlagAverage ? 1.0f / static_cast<float>(thread_.client().settings().ranks) : 1.0f;
  if (tensor.group && is_half(tensor.dtype)) {
    float* sum = TensorCodec::scratch(partition.elements);
    if (!tensor.group->gather_wide(op, piece, sum)) return false;
    tensor.codec->encode_wide(partition, sum, scale, op.coding);
    return true;
  }
  if (tensor.group && !tensor.group->gather(op, piece)) return false;
  tensor.codec->encode(partition, tensor.dtype, route.pushed_memory() + tensor.cut.offset_of(piece), scale,
                       op.coding);
  return true;
}

void ServerLink::decode(Route& route, uint32_t position, uint32_t bytes) {
  const Tensor& tensor = *route.tensor;
  const uint32_t piece = route.pieces[position];
  tensor.codec->decode(*tensor.codec->of(piece), tensor.dtype, bytes, route.op->coding.terms.step,
                       route.op->landing() + tensor.cut.offset_of(piece));
}

void ServerLink::work_on(const CodecJob& job) {
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
  thread_.coded(std::move(outcome));
}

void ServerLink::coded(const CodecOutcome& coded) {
  Route& route = *coded.job.route;
  const uint32_t at = coded.job.position;
  const bool failed = coded.end == CodecOutcome::End::codec_failed;
  if (coded.job.kind == CodecJob::Kind::encode) {
    if (coded.end == CodecOutcome::End::operation_failed) return;  // it takes the route back in a moment
    if (failed) route.refusal = route.tensor->name + ": " + coded.error;
    order_.ready(route, at);
    touched_ = true;
    return;
  }
  if (failed) return refuse_result(route, at, coded.error);
  landed(route, route.pieces[at], coded.job.bytes);
  piece_done(route);
}

void ServerLink::refuse_result(const Route& route, uint32_t position, const std::string& why) {
  if (!link_->alive()) return;
  link_->close();
  on_end(*link_, byteps::Link::End::violation,
         "RESULT: " + route.tensor->name + " piece " + std::to_string(route.pieces[position]) + " round " +
             std::to_string(route.op->round) + " is not a payload of its codec: " + why);
}

void ServerLink::fill_coded(OutFrame& out, const Route& route, uint32_t piece) {
  const PartitionCodec& partition = *route.tensor->codec->of(piece);
  Header& header = out.header;
  header.codec = route.tensor->codec->kind();
  header.received = route.op->coding.terms.word();
  header.length = partition.payload_bytes;
  out.payload = partition.payload.data();
  if (!route.by_address || partition.payload_bytes < limits::kByAddressBytes) return;
  const Offer offer = lease_.offer(partition.payload.data());
  out.keep = thread_.pool().take(kOfferBytes);
  std::memcpy(out.keep.data(), &offer, kOfferBytes);
  out.payload = out.keep.data();
  header.flags |= kFlagByAddress;
  header.detail = partition.payload_bytes;
  header.length = kOfferBytes;
}

// Where a compressed result lands.
std::byte* ServerLink::begin_coded(const Header& header, const Route& route, uint32_t piece) {
  const uint32_t bytes = header.flags & kFlagByAddress ? header.detail : header.length;
  const bool expected = route.tensor->is_coded(*route.op) && header.codec == route.tensor->codec->kind();
  const size_t room = expected ? route.tensor->codec->of(piece)->landing.size() : 0;
  if (bytes == 0 || bytes > room) {
    throw WireError("RESULT: " + route.tensor->name + ": " + std::to_string(bytes) + " bytes of codec " +
                    std::to_string(header.codec) + ", expected at most " + std::to_string(room));
  }
  if (header.flags & kFlagByAddress) return reinterpret_cast<std::byte*>(&offer_);
  return route.tensor->codec->of(piece)->landing.data();
}

void ServerLink::take_coded(const Header& header, Route& route, uint32_t position) {
  const bool by_address = (header.flags & kFlagByAddress) != 0;
  const uint32_t bytes = by_address ? header.detail : header.length;
  if (by_address) {
    fetch(header, route, route.tensor->codec->of(route.pieces[position])->landing.data(), bytes);
  }
  CodecPool& pool = thread_.client().codecs();
  if (pool.threads() == 0) {
    decode(route, position, bytes);
    landed(route, route.pieces[position], bytes);
    return answered(route, position);
  }
  thread_.post_job(route.op->priority, {CodecJob::Kind::decode, &route, position, bytes});
  order_.answered(route, position);
}

}  // namespace byteps
