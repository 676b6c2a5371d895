#include "aggregator/shard.h"

#include <algorithm>

#include "base/clock.h"
#include "observe/sample.h"

namespace byteps {

Shard::Shard(const AggregatorSettings& settings, std::shared_ptr<const Epoch> epoch, TensorTable& tensors,
             unsigned index, EventQueue& events)
    : settings_(settings),
      epoch_(std::move(epoch)),
      events_(events),
      clock_(settings.runtime->clock()),
      loop_(settings.runtime->make_loop(*this, "bps-shard-" + std::to_string(index))),
      keys_(settings, epoch_, tensors, index, counters_),
      links_(epoch_->ranks.size()) {
  ended_.reserve(2 * links_.size());
}

Shard::~Shard() { stop(); }

void Shard::stop() {
  loop_->stop();
  lease_.withdraw();  // results go with this object, and a worker may not have read its last one yet
  for (auto& link : links_) link.reset();
  ended_.clear();
}

// ---- from other threads

void Shard::attach(uint32_t epoch, uint16_t rank, std::unique_ptr<Endpoint> endpoint, bool checksum,
                   pid_t peer_pid, uint32_t tag) {
  std::shared_ptr<Endpoint> shared = std::move(endpoint);  // std::function wants a copyable closure
  loop_->post([this, epoch, rank, shared, checksum, peer_pid, tag] {
    if (epoch != epoch_->number) return;  // the next one has begun meanwhile
    try {
      take_connection(rank, *shared, {settings_.job, epoch, checksum}, peer_pid, tag);
    } catch (const std::exception& error) {  // no memory, or no room in the epoll
      events_.failed(FailureKind::memory, Role::worker, rank, error.what(), tag);
    }
  });
}

void Shard::take_connection(uint16_t rank, Endpoint& endpoint, const LinkOptions& options, pid_t peer_pid,
                            uint32_t tag) {
  const ChildLink::Names names{rank, ++last_connection_, tag};
  auto link = std::make_unique<ChildLink>(*this, *loop_, names, endpoint, options, peer_pid);
  end_connection(rank);  // the rank has connected anew: what it had not finished sending, it sends again
  ShardCounters::bump(counters_.connections);
  links_[rank] = std::move(link);
}

void Shard::end_connection(uint16_t rank) {
  if (!links_[rank]) return;
  links_[rank]->link()->close();
  put_away(*links_[rank]);
}

// It has ended; it is kept until the batch is over.
void Shard::put_away(ChildLink& link) {
  counters_.connections.fetch_sub(1, std::memory_order_relaxed);
  past_traffic_.sent_bytes += link.link()->traffic().sent_bytes;
  past_traffic_.received_bytes += link.link()->traffic().received_bytes;
  ended_.push_back(std::move(links_[link.rank()]));
}

void Shard::depart(uint16_t rank) {
  loop_->post([this, rank] { rank_departed(rank); });
}

void Shard::retire(std::vector<uint32_t> tensors) {
  loop_->post([this, tensors = std::move(tensors)] { forget(tensors); });
}

void Shard::enter(std::shared_ptr<const Epoch> epoch) {
  loop_->post([this, epoch = std::move(epoch)]() mutable { begin_epoch(std::move(epoch)); });
}

void Shard::clear() {
  loop_->post([this] { forget_all(); });
}

// ---- epochs

// Everybody connects anew, and sends again what has no answer: what came before is then known.
void Shard::begin_epoch(std::shared_ptr<const Epoch> epoch) {
  for (uint16_t rank = 0; rank < links_.size(); ++rank) end_connection(rank);
  ended_.reserve(ended_.size() + 2 * epoch->ranks.size());
  links_.resize(epoch->ranks.size());
  first_departed_ = -1;
  const bool same_children = epoch->has_same_children(*epoch_);
  epoch_ = std::move(epoch);
  keys_.enter(epoch_);
  if (same_children) return;
  for (auto& [_, key] : keys_) {
    if (key.round.open()) abandon_round(key);
    key.enter(children());
  }
}

void Shard::forget_all() {
  for (auto& [_, key] : keys_) {
    if (key.round.open()) abandon_round(key);
  }
  lease_.withdraw();  // results go
  keys_.clear();
  to_ask_.clear();
  pool_.trim();
}

// ---- the loop

void Shard::on_batch_end() {
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    if (links_[rank]) links_[rank]->settle();  // may end the link, and so make the pointer null
  }
  uint64_t sent = past_traffic_.sent_bytes, received = past_traffic_.received_bytes;
  for (auto& link : links_) {
    if (!link) continue;
    sent += link->link()->traffic().sent_bytes;
    received += link->link()->traffic().received_bytes;
  }
  counters_.sent_bytes.store(sent, std::memory_order_relaxed);
  counters_.received_bytes.store(received, std::memory_order_relaxed);
  counters_.buffer_bytes.store(pool_.allocated_bytes(), std::memory_order_relaxed);
  ended_.clear();
}

void Shard::child_ended(ChildLink& link, Link::End end, const std::string& reason) {
  events_.failed(Link::failure_of(end), Role::worker, link.rank(), reason, link.tag());
  put_away(link);
}

int64_t Shard::next_deadline_ns() const {
  int64_t next = open_rounds_ > 0 && settings_.stall_warn_s > 0 ? next_look_ns_ : EventLoop::kNever;
  if (!to_ask_.empty()) next = std::min(next, to_ask_.front().ask_ns);
  for (const auto& link : links_) {
    if (link) next = std::min(next, link->credit_due_ns());
  }
  return next;
}

void Shard::on_deadline(int64_t now) {
  for (const auto& link : links_) {
    if (link) link->on_deadline(now);
  }
  ask_for_missing(now);
  if (now < next_look_ns_) return;
  next_look_ns_ = now + kNanosecondsPerSecond;
  tell_stalls(now);
}

void Shard::forget(const std::vector<uint32_t>& tensors) {
  keys_.forget(tensors, [this](KeyState& key) {
    if (key.round.open()) close_round(key);
  });
  pool_.trim();
}

// ---- what people read

std::string Shard::key_text(const Header& header) const {
  const KeyState* key = keys_.find(header.key);
  return key ? describe(*key, header.round) : "an unknown tensor";
}

void Shard::sample(const KeyState& key, const char* stage, uint32_t round, const std::byte* data,
                   DType dtype) {
  if (!key.tensor->traced) return;
  events_.log(kWarning,
              "sample " + describe(key, round) + " " + stage + ": " + sample_text(dtype, data, key.length));
}

void Shard::sample_result(const KeyState& key, const char* stage, uint32_t round) {
  const std::byte* elements = key.rule->result_elements();
  if (elements) sample(key, stage, round, elements, key.tensor->dtype);
}

void Shard::trace_frame(const char* direction, uint16_t rank, const Header& header) {
  if (settings_.verbose < 2) return;
  events_.log(kInfo, std::string(direction) + " " + epoch_->ranks[rank] + " " + name_of(header.type) +
                         " key " + std::to_string(tensor_of(header.key)) + "." +
                         std::to_string(piece_of(header.key)) + " round " + std::to_string(header.round) +
                         " " + std::to_string(header.length) + " bytes");
}

}  // namespace byteps
