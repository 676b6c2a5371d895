#include "sim/trainer.h"

#include <algorithm>

#include "base/crc32c.h"

namespace byteps::sim {

Trainer::Trainer(const Plan& plan, uint16_t rank, Client& client, Network& network, History& history)
    : plan_(plan),
      rank_(rank),
      client_(client),
      network_(network),
      history_(history),
      parameters_(plan.tensors.size()),
      left_(plan.tensors.size() * plan.rounds) {
  for (uint32_t i = 0; i < parameters_.size(); ++i) {
    const Cut cut = plan.cut_of(i);
    std::vector<std::pair<uint16_t, uint16_t>> places;
    for (uint32_t p = 0; p < cut.partitions(); ++p) places.push_back(plan.place_of(i, p));
    parameters_[i].tensor = client.declare(i, "tensor." + std::to_string(i), plan.tensors[i].dtype, cut,
                                           places, false, plan.tensors[i].codec);
  }
}

void Trainer::begin() {
  for (uint32_t i = 0; i < parameters_.size(); ++i) compute(i);
}

void Trainer::compute(uint32_t index) {
  if (parameters_[index].rounds >= plan_.rounds) return;
  const auto drawn = static_cast<int64_t>(network_.random(static_cast<uint64_t>(plan_.compute_ns) + 1));
  network_.at(network_.now_ns() + drawn, [this, index, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) push(index);
  });
}

void Trainer::push(uint32_t index) {
  Parameter& parameter = parameters_[index];
  const TensorPlan& planned = plan_.tensors[index];
  const Call call = call_of(plan_, index, parameter.rounds);
  Elements own = contribution(plan_, index, parameter.rounds, rank_);
  if (call.kind == Call::Kind::broadcast) {
    parameter.destination = std::move(own);
    parameter.op =
        client_.broadcast(parameter.tensor, parameter.destination.data(), call.root, planned.priority);
    return;
  }
  const bool average = call.kind == Call::Kind::average;
  if (planned.in_place) {
    parameter.destination = std::move(own);
  } else {
    parameter.source = std::move(own);
    parameter.destination.assign(parameter.source.size(), std::byte{0xFF});
  }
  const std::byte* from = planned.in_place ? parameter.destination.data() : parameter.source.data();
  parameter.op =
      client_.push_pull(parameter.tensor, from, parameter.destination.data(), planned.priority, average);
}

void Trainer::look() {
  for (uint32_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].op && parameters_[i].op->done()) done(i);
  }
}

void Trainer::done(uint32_t index) {
  Parameter& parameter = parameters_[index];
  const uint32_t round = parameter.rounds++;
  const Failure failure = parameter.op->failure();
  const Elements& elements = parameter.destination;
  history_.push_back({index, round, client_.settings().epoch.number, counted(plan_, index, round, elements),
                      crc32c(elements.data(), elements.size()), network_.now_ns(), failure.kind,
                      failure.message});
  parameter.op.reset();
  --left_;
  failed_ |= failure.kind != FailureKind::none;
  if (failed_) return;
  if (plan_.cross_barrier) return compute(index);
  if (step_is_over()) begin();
}

bool Trainer::step_is_over() const {
  return std::all_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
    return !parameter.op && parameter.rounds == parameters_.front().rounds;
  });
}

std::string Trainer::waiting_text() const {
  std::string text;
  for (uint32_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].rounds >= plan_.rounds) continue;
    text += (text.empty() ? "" : ", ") + std::string("tensor ") + std::to_string(i) + " round " +
            std::to_string(parameters_[i].rounds) + (parameters_[i].op ? "" : " (not pushed)");
  }
  return "worker " + std::to_string(rank_) + " waits for " + text;
}

}  // namespace byteps::sim
