// A process of a simulated job: the runtime of its member, in the network's time and thread.
//
// Its loops go round when something has come for them, a little later: how much is drawn, so that the members
// of a job meet in another order with every seed. It can be frozen for a while (SIGSTOP, a paused machine):
// nothing in it happens, and what arrives waits.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/runtime.h"
#include "transport/sim/network.h"

namespace byteps::sim {

// Outlives its member, and the network outlives it.
class Process final : public Runtime {
 public:
  // `reaction_ns`: the most that passes before one of its threads runs; a job of its crews takes up to ten of
  // it.
  Process(Network& network, int64_t reaction_ns) : network_(network), reaction_ns_(reaction_ns) {}

  // After each turn of a loop: where a script looks at what it waits for. Not for freeing what turns.
  std::function<void()> after_turn = [] {};

  void freeze(int64_t for_ns);
  // Nothing of it happens any more, and nothing is said: its member can be taken apart.
  void kill() { dead_ = true; }

  Clock clock() const override { return network_.clock(); }
  std::unique_ptr<EventLoop> make_loop(EventLoop::Owner& owner, std::string name) override;
  std::unique_ptr<Crew> make_crew(unsigned count, std::string name, std::function<void()> job) override;

  // For its loops and crews.
  Network& network() { return network_; }
  bool dead() const { return dead_; }
  // The soonest that a thread of this process runs if it has to do something at this time.
  int64_t reaction(int64_t when_ns);
  int64_t job_ns();
  // How long this process stands still, from now on; 0: it does not.
  int64_t frozen_ns() const;

 private:
  Network& network_;
  const int64_t reaction_ns_;
  int64_t frozen_until_ns_ = 0;
  bool dead_ = false;
};

}  // namespace byteps::sim
