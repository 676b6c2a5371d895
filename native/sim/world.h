// A whole job in one thread and a made time: real clients and aggregators in simulated processes, connected
// by a simulated network, and the histories of what they did. The same plan does the same again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/aggregator.h"
#include "sim/history.h"
#include "sim/plan.h"
#include "sim/process.h"
#include "sim/trainer.h"
#include "transport/sim/wire.h"

namespace byteps::sim {

struct Outcome {
  std::vector<std::string> complaints{};  // empty: all was right
  std::vector<History> histories{};       // by rank
  uint64_t digest = 0;                    // of them
  int64_t took_ns = 0;                    // of the made time
};

class World {
 public:
  // `tell`: gets every line that members log, frame by frame.
  explicit World(Plan plan, std::function<void(const std::string&)> tell = {});
  ~World();

  // Until all ranks are through, or nothing happens any more, or it is too late.
  Outcome run();

 private:
  // In the order in which they are taken apart: the last one first.
  struct Worker {
    std::unique_ptr<Process> process;
    std::unique_ptr<Client> client;
    std::unique_ptr<Trainer> trainer;
  };
  struct Server {
    std::unique_ptr<Process> process;
    std::unique_ptr<Aggregator> aggregator;
  };
  void add_server(uint16_t number);
  void add_worker(uint16_t rank);
  void connect(uint16_t rank, uint16_t server, uint16_t shard);
  void connect_again(uint32_t tag);
  void plan_fault(const Fault& fault);
  // What a member says: a complaint if it is a failure, or a warning that nothing in the plan explains.
  void hear(const std::string& who, EventQueue& events, bool connects_again);
  void hear_all();

  const Plan plan_;
  const std::function<void(const std::string&)> tell_;
  Network network_;
  std::vector<History> histories_;
  std::vector<std::string> complaints_;
  // By worker, server and shard; and by what the members call the connection.
  using Place = std::tuple<uint16_t, uint16_t, uint16_t>;
  std::map<Place, std::shared_ptr<Wire>> wires_;
  std::map<uint32_t, Place> places_;
  uint64_t connections_ = 0;                                     // made so far
  std::map<std::pair<uint16_t, uint16_t>, int64_t> mending_ns_;  // by worker and server: the most it may take
  std::vector<Server> servers_;
  std::vector<Worker> workers_;
};

}  // namespace byteps::sim
