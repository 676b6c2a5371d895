#include "worker/client.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/sample.h"
#include "worker/turn.h"

namespace byteps {
namespace {

// More threads than this have not been seen to help one worker.
constexpr unsigned kMaxIoThreads = 4;

unsigned io_threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, kMaxIoThreads); }

std::string describe(const Operation& op) {
  return op.tensor->name + " (key " + std::to_string(op.tensor->id) + ") round " + std::to_string(op.round);
}

}  // namespace

Client::Client(ClientSettings settings)
    : settings_(std::move(settings)),
      codecs_(settings_.codec_threads, [](const CodecJob& job) { job.route->link->work_on(job); }) {
  if (!settings_.child_of.empty() && settings_.rank >= settings_.child_of.size())
    throw std::invalid_argument("the children of the servers do not include this rank");
  const unsigned threads = settings_.own_threads ? io_threads() : 1;
  for (unsigned i = 0; i < threads; ++i) threads_.push_back(std::make_unique<IoThread>(*this, i));
}

void Client::connect(uint16_t server, uint16_t shard, std::unique_ptr<Endpoint> endpoint, bool checksum,
                     bool nearby, pid_t peer_pid) {
  if (started_) throw std::logic_error("connect after start");
  IoThread& thread = *threads_[connected_++ % threads_.size()];
  uint64_t most_bytes = settings_.credit_bytes;
  if (nearby && most_bytes > 0) most_bytes = std::min<uint64_t>(most_bytes, limits::kNearbyWindowBytes);
  ++shards_[server];
  const auto servers = std::max<uint32_t>(static_cast<uint32_t>(settings_.servers.size()), server + 1u);
  const uint32_t turn = turn_of(server, servers, shard, child(), children());
  links_[{server, shard}] =
      &thread.add_link(server, *endpoint, checksum, most_bytes, nearby ? nullptr : &budget_, turn, peer_pid);
}

void Client::join(std::shared_ptr<LocalGroup> group) {
  if (started_) throw std::logic_error("join after start");
  group_ = std::move(group);
}

void Client::start() {
  started_ = true;
  if (group_) group_->attach(events_, settings_.worker_hosts);
  if (connected_ == 0) return;  // a machine on its own needs no thread for the network
  if (!settings_.own_threads) return;
  codecs_.start();
  for (auto& thread : threads_) thread->start();
}

bool Client::turn() {
  bool did = false;
  for (auto& thread : threads_) did |= thread->turn();
  return did;
}

void Client::pass(int64_t now) {
  for (auto& thread : threads_) thread->pass(now);
}

Failure Client::lack(const std::string& tensor, const char* why) const noexcept {
  return worded({FailureKind::memory}, [&](Failure& failure) {
    failure.message = tensor + ": " + member_text(Role::worker, settings_.rank, "") + ": " + why +
                      "; give this process more memory, or make the model smaller";
  });
}

// What a tensor needs from the beginning.
template <class Make>
void Client::make_named(const std::string& tensor, const char* what, Make make) const {
  try {
    make();
  } catch (const std::bad_alloc& error) {
    throw OutOfMemory(lack(tensor, (std::string(what) + ": " + error.what()).c_str()).message);
  }
}

std::shared_ptr<Tensor> Client::declare(uint32_t id, const std::string& name, DType dtype, Cut cut,
                                        const std::vector<std::pair<uint16_t, uint16_t>>& placement,
                                        bool direct, const std::optional<compress::DeclaredCodec>& codec,
                                        bool momentum) {
  cut.whole_partitions = codec.has_value();
  cut.cut_bytes = settings_.piece_bytes;
  if (const char* reason = invalid(cut)) throw std::invalid_argument(name + ": " + reason);
  if (name.size() > limits::kMaxNameBytes)
    throw std::invalid_argument("the name of a tensor has at most 4096 bytes");
  LocalGroup* group = direct || cut.tensor_bytes == 0 ? nullptr : group_.get();
  const bool to_servers = !group || group->has_parent();
  if (cut.tensor_bytes > 0 && to_servers && placement.size() != cut.partitions()) {
    throw std::invalid_argument(name + ": placement of " + std::to_string(placement.size()) +
                                " partitions, expected " + std::to_string(cut.partitions()));
  }
  auto tensor = std::make_shared<Tensor>(*this, id, name, dtype, cut);
  if (group) {
    tensor->group = group;
    tensor->slot = group->slot_of(id);
  }
  if (momentum) {
    if (!is_float(dtype)) throw std::invalid_argument(name + ": momentum of " + std::string(name_of(dtype)));
    make_named(name, "its momentum", [&] {
      const uint64_t elements = cut.tensor_bytes / size_of(dtype);
      MemoryGate::shared().ask(elements * (dtype == DType::f64 ? sizeof(double) : sizeof(float)));
      tensor->momentum = std::make_unique<compress::Momentum>(dtype, elements);
    });
  }
  // Pieces go round the ranks of a machine, beginning with another rank for every tensor. Those that have a
  // state stay with their rank when a job goes on under other numbers.
  const uint64_t first = codec ? compress::name_hash(name) : id;
  std::vector<uint32_t> own;
  std::map<ServerLink*, std::unique_ptr<Route>> routes;
  for (uint32_t piece = 0; to_servers && piece < cut.pieces(); ++piece) {
    if (group && (first + piece) % group->size() != group->own()) continue;
    own.push_back(piece);
    const auto [server, first_shard] = placement[cut.partition_of(piece)];
    const uint32_t shards = std::max<uint16_t>(shards_[server], 1);
    const uint32_t shard = (first_shard + piece % cut.pieces_per_partition()) % shards;
    const auto link = links_.find({server, static_cast<uint16_t>(shard)});
    if (link == links_.end())
      throw std::invalid_argument(name + ": placed on a server that is not connected");
    auto& route = routes[link->second];
    if (!route) {
      route = std::make_unique<Route>();
      route->link = link->second;
      route->tensor = tensor.get();
    }
    route->pieces.push_back(piece);
  }
  for (auto& [_, route] : routes) tensor->routes.push_back(std::move(route));
  if (codec && to_servers && cut.tensor_bytes > 0) {
    if (!is_float(dtype)) throw std::invalid_argument(name + ": a codec for " + std::string(name_of(dtype)));
    make_named(name, "its codec", [&] {
      tensor->codec = std::make_unique<TensorCodec>(*codec, name, dtype, cut, own, child() + 1u);
    });
  }
  std::lock_guard lock(mutex_);
  tensors_[id] = tensor;
  return tensor;
}

std::shared_ptr<Operation> Client::push_pull(std::shared_ptr<Tensor> tensor, const std::byte* src,
                                             std::byte* dst, int32_t priority, bool average, float lr) {
  const uint16_t flags = average ? kFlagAverage : 0;
  auto op = std::make_shared<Operation>(std::move(tensor), src, dst, priority, flags, 0);
  op->lr = lr;
  return submit(std::move(op));
}

std::shared_ptr<Operation> Client::broadcast(std::shared_ptr<Tensor> tensor, std::byte* data, uint32_t root,
                                             int32_t priority) {
  return submit(std::make_shared<Operation>(std::move(tensor), data, data, priority, kFlagBroadcast, root));
}

uint32_t Client::child_of(uint32_t rank) const {
  return settings_.child_of.empty() ? rank : settings_.child_of.at(rank);
}

uint32_t Client::children() const {
  if (settings_.child_of.empty()) return std::max<uint32_t>(settings_.ranks, settings_.rank + 1u);
  return 1u + *std::max_element(settings_.child_of.begin(), settings_.child_of.end());
}

std::shared_ptr<Operation> Client::submit(std::shared_ptr<Operation> op) {
  if (op->tensor->group) op->group = group_;
  op->tensor->submit(op);
  return op;
}

void Client::post(Route& route, const std::shared_ptr<Operation>& op) {
  route.link->thread().submit(route, op);
}

// ---- failure ----

Failure Client::failure() const noexcept {
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return copy_of(failure_);
}

Failure Client::failure_of(uint32_t detail, std::string message) const {
  Failure failure{kind_in(detail), std::move(message)};
  if (failure.kind == FailureKind::lost) {
    const uint32_t rank = detail >> kErrorRankShift;
    failure.role = Role::worker;
    failure.rank = static_cast<int>(rank);
    if (rank < settings_.worker_hosts.size()) failure.host = settings_.worker_hosts[rank];
  }
  return failure;
}

void Client::fail(Failure failure) {
  std::vector<std::shared_ptr<Tensor>> tensors;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    failed_.store(true, std::memory_order_release);
    for (auto& [_, tensor] : tensors_) tensors.push_back(tensor);
  }
  for (auto& tensor : tensors) {
    auto op = tensor->poison(failure);
    if (!op) continue;
    op->fail(failure);
    if (tensor->group) tensor->group->give_up(*op);
  }
  if (!started_) return;
  for (auto& thread : threads_) thread->abandon_all();
}

void Client::fail_tensor(uint32_t id, const std::string& message, bool lack) {
  std::shared_ptr<Tensor> tensor;
  {
    std::lock_guard lock(mutex_);
    const auto it = tensors_.find(id);
    if (it == tensors_.end()) return;
    tensor = it->second;
  }
  const Failure failure{lack ? FailureKind::memory : FailureKind::conflict, message};
  if (auto op = tensor->poison(failure)) {
    op->fail(failure);
    abandon(op);
  }
}

void Client::forget(uint32_t id) {
  std::shared_ptr<Tensor> tensor;
  {
    std::lock_guard lock(mutex_);
    const auto it = tensors_.find(id);
    if (it == tensors_.end()) return;
    tensor = std::move(it->second);
    tensors_.erase(it);
  }
  for (auto& thread : threads_) thread->forget(tensor);
}

void Client::depart(uint16_t rank) {
  if (group_) group_->depart(rank);
}

void Client::release_routes(const Operation& op) {
  const auto front = op.tensor->front();
  if (front.get() != &op) return;
  for (auto& thread : threads_) thread->abandon(front);
}

void Client::abandon(const std::shared_ptr<Operation>& op) {
  for (auto& thread : threads_) thread->abandon(op);
  if (op->tensor->group) op->tensor->group->give_up(*op);
}

void Client::close() {
  if (threads_.empty()) return;
  fail({FailureKind::closed, "the job has been shut down"});
  for (auto& thread : threads_) thread->stop();
  codecs_.stop();
  // A thread that ended late may have handed work to one that had ended before it.
  for (auto& thread : threads_) thread->drain();
  if (group_) group_->close();
  threads_.clear();
  links_.clear();
}

void Client::give_up(Operation& op, const Failure& failure) {
  op.fail(failure);
  if (const auto running = op.tensor->poison(failure)) abandon(running);
}

// ---- waiting too long ----

void Client::stalled(Operation& op, const std::string& missing) {
  op.note_missing(missing);
  if (op.stall_told.exchange(true)) return;
  events_.log(kWarning, describe(op) + " waits for " + missing);
}

void Client::check_age(Operation& op, int64_t now, std::string missing, const std::string& detail) {
  const int64_t age = now - op.started_ns;
  if (const std::string told = op.missing(); !told.empty()) missing = told;
  if (settings_.op_timeout_s > 0 && age > seconds_to_ns(settings_.op_timeout_s) && !op.failing()) {
    const Failure failure{FailureKind::timeout,
                          describe(op) + ": no result after " + std::to_string(age / kNanosecondsPerSecond) +
                              " s, waiting for " + missing +
                              ". If that is normal for this job, raise BYTEPS_OP_TIMEOUT_S"};
    return give_up(op, failure);
  }
  // A server says after the same time who is missing; without a word from it, it is the server we wait for.
  const double patience_s = settings_.stall_warn_s + (op.tensor->group ? 0 : 2);
  if (settings_.stall_warn_s > 0 && age > seconds_to_ns(patience_s) && !op.stall_told.exchange(true)) {
    events_.log(kWarning, describe(op) + " waits for " + missing + detail);
  }
}

// ---- observation ----

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
  operations_.fetch_add(1, std::memory_order_relaxed);
  if (settings_.telemetry) speed_.add(op.tensor->cut.tensor_bytes);
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
