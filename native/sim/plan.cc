#include "sim/plan.h"

#include <algorithm>
#include <random>

#include "wire/limits.h"

namespace byteps::sim {
namespace {

// Draws of a plan. Not from <random>'s distributions: they differ between libraries.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t end) { return random_() % end; }
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + below(all.size()));
  }

 private:
  std::mt19937_64 random_;
};

compress::DeclaredCodec drawn_codec(Draw& draw) {
  using compress::CodecKind;
  compress::DeclaredCodec codec;
  codec.spec.kind = draw.one_of({CodecKind::topk, CodecKind::randomk, CodecKind::fp16});
  codec.spec.k = 1 << 24;  // all elements
  codec.spec.halves = codec.spec.kind != CodecKind::fp16 && draw.one_in(3);
  if (draw.one_in(2)) {
    codec.feedback = compress::Feedback::corrected;
    codec.spec.feedback = true;
  }
  return codec;
}

TensorPlan drawn_tensor(Draw& draw, bool few_workers) {
  TensorPlan tensor;
  // Sums of the half types are exact for few workers only; see model.h.
  tensor.dtype = few_workers ? draw.one_of({DType::f32, DType::f32, DType::f16, DType::bf16, DType::i32})
                             : draw.one_of({DType::f32, DType::f64, DType::i32, DType::i64});
  tensor.elements = draw.one_in(4) ? draw.between(5'000, 60'000) : draw.between(1, 3'000);
  tensor.partition_bytes = static_cast<uint32_t>(draw.one_of({8192, 65536, 1 << 20}));
  tensor.priority = static_cast<int32_t>(draw.below(4));
  tensor.in_place = !draw.one_in(3);
  if (few_workers && is_float(tensor.dtype) && draw.one_in(3)) tensor.codec = drawn_codec(draw);
  return tensor;
}

WireOptions drawn_wire(Draw& draw) {
  WireOptions wire;
  wire.delay_ns = static_cast<int64_t>(draw.one_of({5'000, 50'000, 500'000, 20'000'000}));
  wire.jitter_ns = draw.one_in(2) ? wire.delay_ns : 0;
  wire.bytes_per_s = draw.one_of({0.0, 12.5e6, 125e6, 1.25e9});
  wire.segment_bytes = static_cast<size_t>(draw.one_of({1500, 9000, 65536}));
  wire.ragged = draw.one_in(2);
  wire.send_bytes = wire.receive_bytes = static_cast<size_t>(draw.one_of({16'384, 262'144}));
  return wire;
}

Fault drawn_fault(Draw& draw, const Plan& plan) {
  Fault fault;
  fault.what =
      draw.one_of({Fault::What::frozen_worker, Fault::What::frozen_server, Fault::What::silent_link});
  fault.when_ns = static_cast<int64_t>(draw.below(50'000'000));
  fault.for_ns = static_cast<int64_t>(draw.one_of({1'000'000, 30'000'000, 400'000'000}));
  const bool server = fault.what == Fault::What::frozen_server;
  fault.member = static_cast<uint16_t>(draw.below(server ? plan.servers : plan.workers));
  fault.server = static_cast<uint16_t>(draw.below(plan.servers));
  return fault;
}

Fault drawn_break(Draw& draw, const Plan& plan) {
  Fault fault;
  fault.what = Fault::What::broken_link;
  fault.when_ns = static_cast<int64_t>(draw.below(draw.one_of({10'000'000, 100'000'000})));
  fault.for_ns = static_cast<int64_t>(draw.one_of({100'000, 1'000'000, 30'000'000}));
  fault.member = static_cast<uint16_t>(draw.below(plan.workers));
  fault.server = static_cast<uint16_t>(draw.below(plan.servers));
  return fault;
}

}  // namespace

Cut Plan::cut_of(uint32_t tensor) const {
  const TensorPlan& planned = tensors[tensor];
  return {planned.elements * size_of(planned.dtype), planned.partition_bytes, planned.codec.has_value(),
          piece_bytes};
}

std::pair<uint16_t, uint16_t> Plan::place_of(uint32_t tensor, uint32_t partition) const {
  const uint32_t number = tensor + partition;
  return {static_cast<uint16_t>(number % servers), static_cast<uint16_t>(number / servers % shards)};
}

Plan drawn_plan(uint64_t seed) {
  Draw draw(seed);
  Plan plan;
  plan.seed = seed;
  plan.workers = static_cast<uint16_t>(draw.one_in(5) ? draw.between(5, 8) : draw.between(1, 4));
  plan.servers = static_cast<uint16_t>(draw.between(1, 3));
  plan.shards = static_cast<uint16_t>(draw.between(1, 3));
  plan.io_threads = static_cast<unsigned>(draw.between(1, 3));
  plan.codec_threads = static_cast<unsigned>(draw.below(3));
  plan.on_one_machine = draw.one_in(4);
  plan.by_address = plan.on_one_machine && draw.one_in(2);
  plan.checksum = draw.one_in(2);
  plan.deterministic = !draw.one_in(4);
  plan.scheduled = draw.one_in(2);
  plan.credit_bytes = draw.one_of({uint64_t{0}, uint64_t{65'536}, uint64_t{1} << 20, uint64_t{16} << 20});
  plan.piece_bytes = static_cast<uint32_t>(
      draw.one_of({limits::kMinPieceBytes, tuning::kFarPieceBytes, tuning::kPieceBytes}));
  plan.wire = drawn_wire(draw);
  plan.wire.same_machine = plan.on_one_machine;
  plan.reaction_ns = static_cast<int64_t>(draw.one_of({0, 20'000, 2'000'000}));
  plan.compute_ns = static_cast<int64_t>(draw.one_of({10'000, 1'000'000, 40'000'000}));
  plan.cross_barrier = draw.one_in(2);
  plan.rounds = static_cast<uint32_t>(draw.between(2, 8));
  const uint64_t tensors = draw.between(1, 8);
  for (uint64_t i = 0; i < tensors; ++i) plan.tensors.push_back(drawn_tensor(draw, plan.workers <= 4));
  if (draw.one_in(2)) {
    const uint64_t faults = draw.between(1, 3);
    for (uint64_t i = 0; i < faults; ++i) plan.faults.push_back(drawn_fault(draw, plan));
  }
  if (draw.one_in(2)) {
    const uint64_t breaks = draw.between(1, 20);
    for (uint64_t i = 0; i < breaks; ++i) plan.faults.push_back(drawn_break(draw, plan));
  }
  return plan;
}

std::string text_of(const Plan& plan) {
  const auto compressed = std::count_if(plan.tensors.begin(), plan.tensors.end(),
                                        [](const TensorPlan& tensor) { return tensor.codec.has_value(); });
  return "seed " + std::to_string(plan.seed) + ": " + std::to_string(plan.workers) + " workers, " +
         std::to_string(plan.servers) + " servers of " + std::to_string(plan.shards) + " shards, " +
         std::to_string(plan.tensors.size()) + " tensors (" + std::to_string(compressed) + " compressed), " +
         std::to_string(plan.rounds) + " rounds, " + (plan.on_one_machine ? "one machine, " : "") +
         std::to_string(plan.faults.size()) + " faults";
}

}  // namespace byteps::sim
