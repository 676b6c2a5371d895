// How much time and processor a push_pull costs over TCP on loopback: for people who change the data path.
//
//   bench_push_pull [workers] [MB] [rounds] [shards] [socket buffer KB, 0: the system's] [credit KB]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "tests/job.h"

using namespace byteps;
using namespace byteps::testing;

namespace {

int socket_buffer_bytes = 0;

void set_buffers(int server_fd, int client_fd) {
  if (socket_buffer_bytes == 0) return;
  for (const int fd : {server_fd, client_fd}) {
    for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
      ::setsockopt(fd, SOL_SOCKET, option, &socket_buffer_bytes, sizeof socket_buffer_bytes);
    }
  }
}

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  JobOptions options;
  options.workers = static_cast<uint16_t>(argument(1, 2));
  const size_t bytes = static_cast<size_t>(argument(2, 64)) << 20;
  const int rounds = argument(3, 15);
  options.shards = static_cast<unsigned>(argument(4, 2));
  socket_buffer_bytes = argument(5, 0) << 10;
  options.credit_bytes = static_cast<uint64_t>(argument(6, 16000)) << 10;
  options.partition_bytes = 4'096'000;
  options.wire = Wire::tcp;
  options.prepare = set_buffers;
  Job job(options);
  std::vector<std::vector<std::byte>> data(options.workers, std::vector<std::byte>(bytes));
  std::vector<std::shared_ptr<Tensor>> tensors;
  for (uint16_t rank = 0; rank < options.workers; ++rank)
    tensors.push_back(job.declare(rank, 1, DType::f32, bytes));
  std::vector<double> times, cpu;
  for (int round = 0; round < rounds + 3; ++round) {
    const int64_t start = machine_now_ns();
    const double start_cpu = cpu_s();
    std::vector<std::shared_ptr<Operation>> ops;
    for (uint16_t rank = 0; rank < options.workers; ++rank) {
      ops.push_back(
          job.clients[rank]->push_pull(tensors[rank], data[rank].data(), data[rank].data(), 0, false));
    }
    for (auto& op : ops) op->wait_for(60 * kNanosecondsPerSecond);
    if (round < 3) continue;
    times.push_back(static_cast<double>(machine_now_ns() - start) * 1e-6);
    cpu.push_back((cpu_s() - start_cpu) * 1e3);
  }
  std::sort(times.begin(), times.end());
  std::sort(cpu.begin(), cpu.end());
  std::printf(
      "%u workers, %zu MB, %u shards, buffers %d KB, credit %llu KB: wall median %.1f ms min %.1f; cpu "
      "median %.1f min %.1f\n",
      options.workers, bytes >> 20, options.shards, socket_buffer_bytes >> 10,
      static_cast<unsigned long long>(options.credit_bytes >> 10), times[times.size() / 2], times[0],
      cpu[cpu.size() / 2], cpu[0]);
  return 0;
}
