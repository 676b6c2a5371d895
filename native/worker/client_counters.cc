// What a client tells of itself: counters, and the values of a tensor that somebody wants to see.
#include "observe/ring.h"
#include "observe/sample.h"
#include "worker/client.h"

namespace byteps {

void Client::count_push(uint64_t bytes, uint64_t wire_bytes) {
  pushed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  pushed_wire_bytes_.fetch_add(wire_bytes, std::memory_order_relaxed);
  pieces_sent_.fetch_add(1, std::memory_order_relaxed);
}

void Client::count_pull(uint64_t bytes, uint64_t wire_bytes) {
  pulled_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  pulled_wire_bytes_.fetch_add(wire_bytes, std::memory_order_relaxed);
}

void Client::count_operation(const Operation& op) {
  const int64_t now = clock_.now_ns();
  record({.stage = Stage::done,
          .note = op.failing(),
          .round = op.round,
          .key = whole_key(op.tensor->id),
          .at_ns = now,
          .bytes = saturated(op.tensor->cut.tensor_bytes)});
  operations_.fetch_add(1, std::memory_order_relaxed);
  if (settings_.telemetry) speed_.add(op.tensor->cut.tensor_bytes, now);
}

void Client::count_local(const Operation& op) {
  count_operation(op);
  if (!op.failing()) local_bytes_.fetch_add(op.tensor->cut.tensor_bytes, std::memory_order_relaxed);
}

std::map<std::string, uint64_t> Client::counters() const {
  std::map<std::string, uint64_t> out{
      {"pushed_bytes", pushed_bytes_.load(std::memory_order_relaxed)},
      {"pulled_bytes", pulled_bytes_.load(std::memory_order_relaxed)},
      {"pushed_wire_bytes", pushed_wire_bytes_.load(std::memory_order_relaxed)},
      {"pulled_wire_bytes", pulled_wire_bytes_.load(std::memory_order_relaxed)},
      {"pieces_sent", pieces_sent_.load(std::memory_order_relaxed)},
      {"pieces_sent_again", pieces_again_.load(std::memory_order_relaxed)},
      {"reconnections", reconnections_.load(std::memory_order_relaxed)},
      {"operations", operations_.load(std::memory_order_relaxed)},
      {"local_bytes", local_bytes_.load(std::memory_order_relaxed)},
      {"wire_sent_bytes", 0},
      {"wire_received_bytes", 0}};
  for (const auto& thread : threads_) {
    out["wire_sent_bytes"] += thread->sent_bytes();
    out["wire_received_bytes"] += thread->received_bytes();
  }
  return out;
}

void Client::sample(const Tensor& tensor, const char* stage, uint32_t round, uint32_t piece,
                    const std::byte* data, size_t bytes, DType dtype) {
  if (settings_.sample.empty() || bytes == 0 || !sample_matches(settings_.sample, tensor.name, tensor.id))
    return;
  std::string text = "sample " + tensor.name + " (key " + std::to_string(tensor.id) + ")";
  if (tensor.cut.pieces() > 1) text += " piece " + std::to_string(piece);
  events_.log(kWarning, text + " round " + std::to_string(round) + " " + stage + ": " +
                            sample_text(dtype, data, bytes));
}

}  // namespace byteps
