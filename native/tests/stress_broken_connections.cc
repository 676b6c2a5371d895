// Connections break under the threads of a whole job, and are made again: for the sanitizers.
//
// A thread for each rank pushes, one cuts connections at random, one makes them again as the control plane
// does. Usage: stress_broken_connections [seed]
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "tests/stress.h"

using namespace byteps;
using namespace byteps::testing;

namespace {

// A second descriptor of every worker's end, to cut it by.
std::mutex ends_mutex;
std::vector<Fd> ends;

void keep_end(int, int client_fd) {
  std::lock_guard lock(ends_mutex);
  ends.emplace_back(::dup(client_fd));
}

void cut_one(std::mt19937_64& random) {
  std::lock_guard lock(ends_mutex);
  if (ends.empty()) return;
  const size_t at = random() % ends.size();
  ::shutdown(ends[at].get(), SHUT_RDWR);
  ends[at] = std::move(ends.back());
  ends.pop_back();
}

// How many connections were made again until `done`.
size_t mend(Job& job, unsigned shards, const std::atomic<bool>& done) {
  size_t mended = 0;
  while (!done) {
    for (uint16_t rank = 0; rank < job.clients.size(); ++rank) {
      pollfd waiting{job.clients[rank]->events().fileno(), POLLIN, 0};
      if (::poll(&waiting, 1, 1) <= 0) continue;
      for (const Event& event : job.clients[rank]->events().drain()) {
        if (event.what != Event::What::failure) continue;
        CHECK(event.kind == FailureKind::lost);
        if (event.kind != FailureKind::lost) std::fprintf(stderr, "%s\n", event.text.c_str());
        job.connect(rank, static_cast<uint16_t>((event.connection - 1) % shards));
        ++mended;
      }
    }
  }
  return mended;
}

void run(JobOptions options, uint64_t seed, int rounds) {
  options.prepare = keep_end;
  const std::vector<byteps::testing::Shape> shapes = {
      {1, 100}, {2, 300'000}, {3, 17}, {4, 70'000}, {5, 150'000}};
  size_t mended = 0;
  {
    Job job(options);
    std::atomic<bool> done{false};
    std::thread cutting([&] {
      std::mt19937_64 random(seed);
      while (!done) {
        ::usleep(static_cast<useconds_t>(random() % 4000));
        cut_one(random);
      }
    });
    std::thread mending([&] { mended = mend(job, options.shards, done); });
    std::vector<std::thread> ranks;
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      ranks.emplace_back([&, rank] { push_rounds(job, rank, options.workers, shapes, rounds, seed); });
    }
    for (auto& rank : ranks) rank.join();
    done = true;
    cutting.join();
    mending.join();
  }
  std::lock_guard lock(ends_mutex);
  ends.clear();
  std::printf("%zu connections made again\n", mended);
  CHECK(mended > 0);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const int rounds = 15;
  for (const bool compressed : {false, true}) {
    run({.workers = 3, .compressed = compressed, .checksum = true, .wire = Wire::tcp}, seed, rounds);
    run({.workers = 2, .by_address = true, .compressed = compressed, .same_machine = true}, seed, rounds);
    run({.workers = 4, .child_of = {0, 0, 1, 1}, .grouped = true, .compressed = compressed}, seed, rounds);
  }
  return check::failures() != 0;
}
