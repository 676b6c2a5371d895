#include "sim/world.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "base/clock.h"

namespace byteps::sim {
namespace {

constexpr uint64_t kJob = 1;
constexpr uint32_t kEpoch = 1;
// Of the made time. No plan takes nearly as long: what is not done by then never is.
constexpr int64_t kTooLateNs = 1800 * kNanosecondsPerSecond;

std::string worker_name(uint16_t rank) { return "worker " + std::to_string(rank); }
std::string server_name(uint16_t number) { return "server " + std::to_string(number); }

Epoch epoch_of(const Plan& plan) {
  Epoch epoch;
  epoch.number = kEpoch;
  for (uint16_t rank = 0; rank < plan.workers; ++rank) {
    epoch.ranks.push_back(worker_name(rank));
    epoch.hosts.push_back("simulated");
    epoch.child_of.push_back(rank);
  }
  epoch.children = epoch.ranks;
  for (uint16_t number = 0; number < plan.servers; ++number) {
    epoch.servers.push_back({server_name(number), plan.shards});
  }
  return epoch;
}

}  // namespace

World::World(Plan plan, std::function<void(const std::string&)> tell)
    : plan_(std::move(plan)), tell_(std::move(tell)), network_(plan_.seed), histories_(plan_.workers) {
  for (uint16_t number = 0; number < plan_.servers; ++number) add_server(number);
  for (uint16_t rank = 0; rank < plan_.workers; ++rank) add_worker(rank);
  for (const Fault& fault : plan_.faults) plan_fault(fault);
}

World::~World() {
  for (Worker& worker : workers_) worker.client->close();  // before the memory of their operations goes
}

void World::add_server(uint16_t number) {
  auto process = std::make_unique<Process>(network_, plan_.reaction_ns);
  AggregatorSettings settings;
  settings.job = kJob;
  settings.epoch = epoch_of(plan_);
  settings.shards = plan_.shards;
  settings.deterministic = plan_.deterministic;
  settings.scheduled = plan_.scheduled;
  settings.verbose = tell_ ? 2 : 0;
  settings.runtime = process.get();
  auto aggregator = std::make_unique<Aggregator>(settings);
  for (uint32_t i = 0; i < plan_.tensors.size(); ++i) {
    const Cut cut = plan_.cut_of(i);
    std::vector<int32_t> shards;
    for (uint32_t p = 0; p < cut.partitions(); ++p) {
      const auto [server, shard] = plan_.place_of(i, p);
      shards.push_back(server == number ? shard : TensorInfo::Run::kElsewhere);
    }
    aggregator->declare({i,
                         "tensor." + std::to_string(i),
                         plan_.tensors[i].dtype,
                         cut,
                         {{1, shards}},
                         plan_.tensors[i].codec});
  }
  if (tell_)
    process->after_turn = [this, number] {
      hear(server_name(number), servers_[number].aggregator->events(), false);
    };
  servers_.push_back({std::move(process), std::move(aggregator)});
}

void World::add_worker(uint16_t rank) {
  auto process = std::make_unique<Process>(network_, plan_.reaction_ns);
  ClientSettings settings;
  settings.job = kJob;
  settings.epoch = epoch_of(plan_);
  settings.rank = rank;
  settings.codec_threads = plan_.codec_threads;
  settings.credit_bytes = plan_.credit_bytes;
  settings.piece_bytes = plan_.piece_bytes;
  settings.io_threads = plan_.io_threads;
  settings.verbose = tell_ ? 2 : 0;
  settings.runtime = process.get();
  workers_.push_back({std::move(process), std::make_unique<Client>(settings), nullptr});
  Worker& worker = workers_.back();
  for (uint16_t number = 0; number < plan_.servers; ++number) {
    for (uint16_t shard = 0; shard < plan_.shards; ++shard) connect(rank, number, shard);
  }
  worker.client->start();
  worker.trainer = std::make_unique<Trainer>(plan_, rank, *worker.client, network_, histories_[rank]);
  worker.process->after_turn = [this, rank] {
    workers_[rank].trainer->look();
    hear(worker_name(rank), workers_[rank].client->events(), true);
  };
}

void World::connect(uint16_t rank, uint16_t server, uint16_t shard) {
  const pid_t peer = plan_.by_address ? ::getpid() : 0;
  const auto tag = static_cast<uint32_t>(++connections_);
  Connection connection = network_.connect(plan_.wire);
  places_[tag] = {rank, server, shard};
  wires_[{rank, server, shard}] = connection.wire;
  servers_[server].aggregator->attach(shard, rank, std::move(connection.first), plan_.checksum, peer, tag);
  workers_[rank].client->connect(server, shard, std::move(connection.second), plan_.checksum,
                                 plan_.on_one_machine, peer, tag);
}

// As the control plane does it, when a worker has told of the end of its connection.
void World::connect_again(uint32_t tag) {
  const auto place = places_.find(tag);
  if (place == places_.end()) throw std::logic_error("a connection ended twice");
  const auto [rank, server, shard] = place->second;
  places_.erase(place);
  const auto most_ns = static_cast<uint64_t>(mending_ns_[{rank, server}]);
  network_.at(network_.now_ns() + static_cast<int64_t>(network_.random(most_ns + 1)),
              [this, rank = rank, server = server, shard = shard] { connect(rank, server, shard); });
}

void World::plan_fault(const Fault& fault) {
  switch (fault.what) {
    case Fault::What::frozen_worker:
      return network_.at(fault.when_ns,
                         [this, fault] { workers_[fault.member].process->freeze(fault.for_ns); });
    case Fault::What::frozen_server:
      return network_.at(fault.when_ns,
                         [this, fault] { servers_[fault.member].process->freeze(fault.for_ns); });
    case Fault::What::silent_link:
      network_.at(fault.when_ns, [this, fault] {
        for (uint16_t i = 0; i < plan_.shards; ++i) wires_[{fault.member, fault.server, i}]->silence();
      });
      return network_.at(fault.when_ns + fault.for_ns, [this, fault] {
        for (uint16_t i = 0; i < plan_.shards; ++i) wires_[{fault.member, fault.server, i}]->heal();
      });
    case Fault::What::broken_link:
      return network_.at(fault.when_ns, [this, fault] {
        mending_ns_[{fault.member, fault.server}] = fault.for_ns;
        for (uint16_t i = 0; i < plan_.shards; ++i) {
          Wire& wire = *wires_[{fault.member, fault.server, i}];
          if (!wire.lost()) wire.lose();
        }
      });
  }
}

void World::hear(const std::string& who, EventQueue& events, bool connects_again) {
  for (const Event& event : events.drain()) {
    if (tell_) tell_(std::to_string(network_.now_ns()) + " " + who + ": " + event.text);
    const bool is_broken = event.what == Event::What::failure && event.kind == FailureKind::lost;
    if (is_broken && !mending_ns_.empty()) {  // the plan has broken something
      if (connects_again) connect_again(event.connection);
      continue;
    }
    if (event.what != Event::What::log || event.number >= kWarning) {
      complaints_.push_back(who + " says: " + event.text);
    }
  }
}

void World::hear_all() {
  for (uint16_t number = 0; number < servers_.size(); ++number) {
    hear(server_name(number), servers_[number].aggregator->events(), false);
  }
  for (uint16_t rank = 0; rank < workers_.size(); ++rank) {
    hear(worker_name(rank), workers_[rank].client->events(), true);
  }
}

Outcome World::run() {
  const auto finished = [](const Worker& worker) { return worker.trainer->finished(); };
  for (Worker& worker : workers_) worker.trainer->begin();
  try {
    while (!std::all_of(workers_.begin(), workers_.end(), finished) &&
           network_.next_event_ns() <= kTooLateNs) {
      network_.advance(network_.next_event_ns());
    }
  } catch (const std::logic_error& error) {
    complaints_.push_back(error.what());
  }
  for (const Worker& worker : workers_) {
    if (!finished(worker)) complaints_.push_back(worker.trainer->waiting_text());
  }
  hear_all();
  Outcome outcome;
  outcome.complaints = complaints(plan_, histories_);
  outcome.complaints.insert(outcome.complaints.begin(), complaints_.begin(), complaints_.end());
  outcome.digest = digest(histories_);
  outcome.took_ns = network_.now_ns();
  outcome.histories = histories_;
  return outcome;
}

}  // namespace byteps::sim
