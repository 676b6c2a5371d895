// Heartbeats over real connections: who is silent, who is gone, and whose silence is our own.
#include "liveness/liveness.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/check.h"
#include "tests/sockets.h"

using namespace byteps;
using byteps::testing::connected_pair;
using byteps::testing::Wire;

namespace {

constexpr uint64_t kJob = 7;
constexpr double kInterval = 0.05, kTimeout = 0.5;

// What is told within this time; comes back as soon as there is something.
std::vector<Event> wait_events(Liveness& liveness, int for_ms) {
  pollfd ready{liveness.events().fileno(), POLLIN, 0};
  ::poll(&ready, 1, for_ms);
  return liveness.events().drain();
}

void link_up(Liveness& one, Liveness& other, int peer, int lines = 2) {
  for (int i = 0; i < lines; ++i) {
    auto [a, b] = connected_pair(Wire::tcp);
    one.add(tcp_endpoint(std::move(a)), peer);
    other.add(tcp_endpoint(std::move(b)), peer);
  }
}

}  // namespace

TEST(those_who_beat_are_not_silent) {
  Liveness one(kJob, kInterval, kTimeout), other(kJob, kInterval, kTimeout);
  for (int peer = 0; peer < 20; ++peer) link_up(one, other, peer);
  CHECK_EQ(wait_events(one, 1500).size(), 0u);
  CHECK_EQ(other.events().drain().size(), 0u);
}

TEST(the_next_beat_is_told_to_whoever_asks) {
  Liveness one(kJob, kInterval, 60), other(kJob, kInterval, 60);
  link_up(one, other, 3);
  for (int again = 0; again < 2; ++again) {
    one.listen_for(3);
    const auto events = wait_events(one, 10'000);
    CHECK_EQ(events.size(), 1u);
    if (!events.empty()) CHECK(events[0].what == Event::What::heard && events[0].number == 3);
  }
}

TEST(silence_is_told_once_with_its_length) {
  Liveness one(kJob, kInterval, kTimeout);
  auto [a, b] = connected_pair(Wire::tcp);
  auto [c, d] = connected_pair(Wire::tcp);
  one.add(tcp_endpoint(std::move(a)), 5);
  one.add(tcp_endpoint(std::move(c)), 5);
  const auto events = wait_events(one, 10'000);
  CHECK_EQ(events.size(), 1u);
  if (events.empty()) return;
  CHECK_EQ(events[0].kind, FailureKind::silent);
  CHECK_EQ(events[0].number, 5);
  CHECK(std::stod(events[0].text) >= kTimeout);
  CHECK_EQ(wait_events(one, 300).size(), 0u);
}

TEST(the_end_of_one_line_is_the_end_of_the_peer) {
  Liveness one(kJob, kInterval, 60);
  auto [a, b] = connected_pair(Wire::tcp);
  auto [c, d] = connected_pair(Wire::tcp);
  one.add(tcp_endpoint(std::move(a)), 1);
  one.add(tcp_endpoint(std::move(c)), 1);
  b.reset();
  const auto events = wait_events(one, 10'000);
  CHECK_EQ(events.size(), 1u);
  if (!events.empty()) CHECK_EQ(events[0].kind, FailureKind::lost);
  std::byte buffer[256];
  while (::read(d.get(), buffer, sizeof buffer) > 0) {
  }  // until it is closed, too
  CHECK_EQ(wait_events(one, 100).size(), 0u);
}

// The judge was stopped, and what the others said meanwhile lies in more sockets than one look at them
// covers.
TEST(the_pause_of_the_judge_is_nobodys_silence) {
  constexpr int kPeers = 150;
  std::vector<Fd> near, far;
  for (int i = 0; i < 2 * kPeers; ++i) {
    auto [a, b] = connected_pair(Wire::unix_pair);
    near.push_back(std::move(a));
    far.push_back(std::move(b));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    Liveness others(kJob, kInterval, 60);
    for (int i = 0; i < 2 * kPeers; ++i) others.add(tcp_endpoint(std::move(far[i])), i / 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(::getppid(), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ::kill(::getppid(), SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::_exit(0);
  }
  far.clear();
  Liveness judge(kJob, kInterval, kTimeout);
  for (int i = 0; i < 2 * kPeers; ++i) judge.add(tcp_endpoint(std::move(near[i])), i / 2);
  int status = 0;
  ::waitpid(child, &status, 0);
  for (const Event& event : judge.events().drain()) CHECK_EQ(event.kind, FailureKind::lost);  // when it ended
}
