// Workers and a shard in one thread, over simulated connections: for counting what a round costs, without the
// noise of threads and sockets.
//
//   valgrind --tool=callgrind --callgrind-out-file=/dev/null bench_rounds [tensors] [bytes of each] [rounds]
//   [workers]
//
// Counts of two builds say what a change costs in instructions; --toggle-collect='measured*' leaves the start
// out.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/shard.h"
#include "base/clock.h"
#include "tests/by_hand.h"
#include "tests/job.h"
#include "transport/sim/network.h"
#include "worker/client.h"

using namespace byteps;

namespace {

struct Members {
  explicit Members(uint16_t workers)
      : network(1),
        settings(of(workers, hand)),
        shard(settings, std::make_shared<const Epoch>(settings.epoch), tensors, 0, events) {
    for (uint16_t rank = 0; rank < workers; ++rank) {
      ClientSettings c;
      c.job = 1;
      c.epoch = settings.epoch;
      c.rank = rank;
      c.credit_bytes = 16 << 20;
      c.io_threads = 1;
      c.runtime = &hand;
      clients.push_back(std::make_unique<Client>(c));
      auto connection = network.connect({});
      shard.attach(1, rank, std::move(connection.first), false, 0, 0);
      clients.back()->connect(0, 0, std::move(connection.second), false, true);
      clients.back()->start();
    }
  }
  ~Members() {
    for (auto& client : clients) client->close();
  }
  static AggregatorSettings of(uint16_t workers, Runtime& runtime) {
    AggregatorSettings settings;
    settings.runtime = &runtime;
    settings.job = 1;
    settings.epoch = byteps::testing::epoch_of(1, workers);
    return settings;
  }

  byteps::testing::ByHand hand;
  sim::Network network;
  const AggregatorSettings settings;
  TensorTable tensors;
  EventQueue events;
  Shard shard;
  std::vector<std::unique_ptr<Client>> clients;
};

using Declared = std::vector<std::vector<std::shared_ptr<Tensor>>>;

}  // namespace

// Not inlined, and not in a namespace: callgrind is told to collect inside it.
extern "C" __attribute__((noinline)) bool measured_round(Members& members, const Declared& declared,
                                                         std::vector<std::vector<std::byte>>& data) {
  std::vector<std::shared_ptr<Operation>> operations;
  const size_t bytes = data[0].size() / declared[0].size();
  for (size_t rank = 0; rank < declared.size(); ++rank) {
    for (size_t i = 0; i < declared[rank].size(); ++i) {
      std::byte* at = data[rank].data() + i * bytes;
      operations.push_back(members.clients[rank]->push_pull(declared[rank][i], at, at, 0, false));
    }
  }
  for (size_t done = 0;;) {
    if (members.hand.turn()) continue;
    while (done < operations.size() && operations[done]->done()) ++done;
    if (done == operations.size()) return true;
    const int64_t next = members.network.next_event_ns();
    if (next == EventLoop::kNever) return false;
    members.hand.pass(next - members.network.now_ns());
    members.network.advance(next);
  }
}

int main(int argc, char** argv) {
  const auto argument = [&](int i, size_t otherwise) {
    return argc > i ? static_cast<size_t>(std::atoll(argv[i])) : otherwise;
  };
  const size_t tensors = argument(1, 1000), bytes = argument(2, 4096), rounds = argument(3, 6);
  const auto workers = static_cast<uint16_t>(argument(4, 2));
  Members members(workers);
  const Cut cut{bytes, 4'096'000};
  Declared declared(workers);
  for (uint32_t id = 1; id <= tensors; ++id) {
    const std::string name = "t" + std::to_string(id);
    members.tensors.declare(byteps::testing::placed_here(id, name, DType::f32, cut));
    const std::vector<std::pair<uint16_t, uint16_t>> placement(cut.partitions(), {0, 0});
    for (uint16_t rank = 0; rank < workers; ++rank) {
      declared[rank].push_back(members.clients[rank]->declare(id, name, DType::f32, cut, placement));
    }
  }
  std::vector<std::vector<std::byte>> data(workers, std::vector<std::byte>(tensors * bytes));
  std::vector<double> times;
  for (size_t round = 0; round < rounds; ++round) {
    const int64_t start = machine_now_ns();
    if (!measured_round(members, declared, data)) {
      std::fprintf(stderr, "round %zu does not end\n", round);
      return 1;
    }
    times.push_back(static_cast<double>(machine_now_ns() - start) * 1e-6);
  }
  for (const double time : times) std::printf("%.3f ", time);
  std::printf("ms\n");
  return 0;
}
