// The script of a simulated rank: a training loop that never blocks. It computes for a while, pushes its
// gradients, looks whether results have come, and writes down what it has seen.
#pragma once

#include <memory>
#include <vector>

#include "sim/history.h"
#include "sim/model.h"
#include "transport/sim/network.h"
#include "worker/client.h"

namespace byteps::sim {

class Trainer {
 public:
  // Declares its tensors. All but the history end with the job.
  Trainer(const Plan& plan, uint16_t rank, Client& client, Network& network, History& history);

  void begin();
  // At what may be done by now; after each turn of the client.
  void look();
  bool finished() const { return left_ == 0 || failed_; }
  // What it waits for, for people.
  std::string waiting_text() const;

 private:
  struct Parameter {
    std::shared_ptr<Tensor> tensor{};
    std::shared_ptr<Operation> op{};
    Elements source{}, destination{};  // in place: only the second
    uint32_t rounds = 0;               // done
  };
  void compute(uint32_t index);
  void push(uint32_t index);
  void done(uint32_t index);
  bool step_is_over() const;

  const Plan& plan_;
  const uint16_t rank_;
  Client& client_;
  Network& network_;
  History& history_;
  std::vector<Parameter> parameters_;
  size_t left_;  // rounds of all parameters
  bool failed_ = false;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace byteps::sim
