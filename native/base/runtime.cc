#include "base/runtime.h"

#include "base/epoll_loop.h"

namespace byteps {
namespace {

class Machine final : public Runtime {
 public:
  Clock clock() const override { return {}; }
  std::unique_ptr<EventLoop> make_loop(EventLoop::Owner& owner, std::string name) override {
    return std::make_unique<EpollLoop>(owner, std::move(name));
  }
  std::unique_ptr<Crew> make_crew(unsigned count, std::string name, std::function<void()> job) override {
    return std::make_unique<ThreadCrew>(count, std::move(name), std::move(job));
  }
};

}  // namespace

Runtime& Runtime::machine() {
  static Machine machine;
  return machine;
}

}  // namespace byteps
