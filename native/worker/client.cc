#include "worker/client.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "base/memory.h"
#include "base/tuning.h"
#include "observe/ring.h"
#include "observe/sample.h"
#include "wire/limits.h"
#include "worker/turn.h"

namespace byteps {
namespace {

unsigned io_threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, tuning::kMostIoThreads); }

}  // namespace

Client::Client(ClientSettings settings)
    : settings_(std::move(settings)),
      clock_(settings_.runtime->clock()),
      codecs_(settings_.codec_threads, *settings_.runtime,
              [](const CodecJob& job) { job.route->link->work_on(job); }) {
  if (const char* reason = invalid(settings_.epoch)) throw std::invalid_argument(reason);
  if (settings_.rank >= settings_.epoch.ranks.size())
    throw std::invalid_argument("the epoch does not include this rank");
  const auto epoch = std::make_shared<const Epoch>(settings_.epoch);
  const unsigned threads = settings_.io_threads > 0 ? settings_.io_threads : io_threads();
  for (unsigned i = 0; i < threads; ++i) threads_.push_back(std::make_unique<IoThread>(*this, epoch, i));
}

void Client::connect(uint16_t server, uint16_t shard, std::unique_ptr<Endpoint> endpoint, bool checksum,
                     bool same_machine, pid_t peer_pid, uint32_t tag) {
  const auto& servers = settings_.epoch.servers;
  if (server >= servers.size() || shard >= servers[server].shards)
    throw std::out_of_range("no such server or shard in this epoch");
  if (started_) {
    ServerLink& link = *links_.at({server, shard});
    if (link.peer_pid() != peer_pid)
      throw std::invalid_argument(
          "the server's memory could be read before, and cannot now, or the other way");
    return link.thread().connect_again(link, std::move(endpoint), checksum, tag);
  }
  IoThread& thread = *threads_[connected_++ % threads_.size()];
  uint64_t most_bytes = settings_.credit_bytes;
  if (same_machine && most_bytes > 0)
    most_bytes = std::min<uint64_t>(most_bytes, tuning::kSameMachineWindowBytes);
  const uint32_t turn =
      turn_of(server, static_cast<uint32_t>(servers.size()), shard, child(), settings_.epoch.child_count());
  links_[{server, shard}] = &thread.add_link(server, *endpoint, checksum, most_bytes,
                                             same_machine ? nullptr : &budget_, turn, peer_pid, tag);
}

void Client::enter(Epoch epoch) {
  const Epoch& first = settings_.epoch;
  if (const char* reason = invalid(epoch)) throw std::invalid_argument(reason);
  if (!epoch.has_same_children(first) || epoch.servers.size() != first.servers.size())
    throw std::invalid_argument("the next epoch has other workers, or another number of servers");
  const auto next = std::make_shared<const Epoch>(std::move(epoch));
  for (auto& thread : threads_) thread->enter(next);
}

void Client::join(std::shared_ptr<LocalGroup> group) {
  if (started_) throw std::logic_error("join after start");
  group_ = std::move(group);
}

void Client::start() {
  started_ = true;
  if (group_) group_->attach(events_, settings_.epoch.hosts);
  if (connected_ == 0) return;  // a machine on its own needs no thread for the network
  codecs_.start();
  for (auto& thread : threads_) thread->start();
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
  const auto& servers = settings_.epoch.servers;
  std::vector<uint32_t> own;
  std::map<std::pair<uint16_t, uint16_t>, std::unique_ptr<Route>>
      routes;  // in the order of servers and shards
  for (uint32_t piece = 0; to_servers && piece < cut.pieces(); ++piece) {
    if (group && (first + piece) % group->size() != group->own()) continue;
    own.push_back(piece);
    const auto [server, first_shard] = placement[cut.partition_of(piece)];
    const uint32_t shards = server < servers.size() ? servers[server].shards : 1u;
    const uint32_t shard = (first_shard + piece % cut.pieces_per_partition()) % shards;
    const auto link = links_.find({server, static_cast<uint16_t>(shard)});
    if (link == links_.end())
      throw std::invalid_argument(name + ": placed on a server that is not connected");
    auto& route = routes[link->first];
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

std::shared_ptr<Operation> Client::submit(std::shared_ptr<Operation> op) {
  if (op->tensor->group) op->group = group_;
  op->tensor->submit(op);
  return op;
}

void Client::post(Route& route, const std::shared_ptr<Operation>& op) {
  route.link->thread().submit(route, op);
}

}  // namespace byteps
