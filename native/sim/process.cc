#include "sim/process.h"

#include <algorithm>

#include "sim/sim_crew.h"
#include "sim/sim_loop.h"

namespace byteps::sim {

std::unique_ptr<EventLoop> Process::make_loop(EventLoop::Owner& owner, std::string) {
  return std::make_unique<SimLoop>(*this, owner);
}

std::unique_ptr<Crew> Process::make_crew(unsigned count, std::string, std::function<void()> job) {
  return std::make_unique<SimCrew>(*this, count, std::move(job));
}

void Process::freeze(int64_t for_ns) {
  frozen_until_ns_ = std::max(frozen_until_ns_, network_.now_ns() + for_ns);
}

int64_t Process::frozen_ns() const { return std::max<int64_t>(frozen_until_ns_ - network_.now_ns(), 0); }

int64_t Process::reaction(int64_t when_ns) {
  return when_ns + static_cast<int64_t>(network_.random(static_cast<uint64_t>(reaction_ns_) + 1));
}

int64_t Process::job_ns() {
  return static_cast<int64_t>(network_.random(10 * static_cast<uint64_t>(reaction_ns_) + 1));
}

}  // namespace byteps::sim
