// A watched connection over a real socket; what all transports do is in test_transports.cc. That a cut one
// ends is shown in a lab: tests/chaos/test_links.py.
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/epoll_loop.h"
#include "tests/check.h"
#include "tests/sockets.h"

using namespace byteps;
using byteps::testing::connected_pair;
using byteps::testing::Wire;

namespace {

// A link that always has something to send, in a loop that this thread stands in for.
struct Sender final : EventLoop::Owner, FrameSource, FrameSink, Link::Watcher {
  explicit Sender(Fd fd, int64_t tolerated_ns) : loop(*this, "test") {
    link = tcp_endpoint(std::move(fd))->open(loop, {7, 0, false, tolerated_ns}, *this, *this, *this);
  }
  bool next(OutFrame& out) override {
    out = {};
    out.header.type = FrameType::push;
    out.header.length = static_cast<uint32_t>(payload.size());
    out.payload = payload.data();
    return true;
  }
  std::byte* begin(const Header&) override { return nullptr; }
  void end(const Header&, bool) override {}
  void on_end(Link&, Link::End, const std::string& why) override { reason = why; }
  void on_batch_end() override {}
  int64_t next_deadline_ns() const override { return EventLoop::kNever; }
  void on_deadline(int64_t) override {}
  void on_exception(const char*) noexcept override {}

  EpollLoop loop;
  std::vector<std::byte> payload{65536};
  std::string reason;
  std::shared_ptr<Link> link;
};

}  // namespace

TEST(a_reader_that_does_not_read_is_not_cut_off) {
  auto [reader, fd] = connected_pair(Wire::tcp);
  Sender sender(std::move(fd), kNanosecondsPerSecond / 10);  // a cut would be known after 1.6 s
  sender.link->flush();  // until both buffers are full and the window is closed
  CHECK(!sender.link->delivered());
  for (const int64_t end = machine_now_ns() + 4 * kNanosecondsPerSecond; machine_now_ns() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    sender.link->watch(true, machine_now_ns());
    CHECK(sender.link->alive());
  }
  CHECK_EQ(sender.reason, "");
  sender.link->watch(false, machine_now_ns());
}
