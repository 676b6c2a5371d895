// What stress programs do to a job, in one process: for the sanitizers.
//
// Every worker pushes the same tensors in an order of its own, several at a time. Worker r contributes
// (element index mod 7 + 1) * 4^r, so a sum shows who was counted and how often. Then jobs are broken on
// purpose: an operation's memory must not be touched once the operation is done, however it ended.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/clock.h"
#include "tests/check.h"
#include "tests/job.h"

namespace byteps::testing {

inline constexpr int64_t kPatienceNs = 60 * kNanosecondsPerSecond;

struct Shape {
  uint32_t id;
  uint64_t elements;
};

inline float value(size_t i, uint16_t rank) {
  return static_cast<float>(i % 7 + 1) * static_cast<float>(1 << (2 * rank));
}

inline void push_rounds(Job& job, uint16_t rank, uint16_t workers, const std::vector<Shape>& shapes,
                        int rounds, uint64_t seed) {
  std::mt19937_64 random(seed + rank);
  std::vector<std::shared_ptr<Tensor>> tensors;
  for (const Shape& shape : shapes)
    tensors.push_back(job.declare(rank, shape.id, DType::f32, shape.elements * 4));
  float factor = 0;
  for (uint16_t r = 0; r < workers; ++r) factor += static_cast<float>(1 << (2 * r));
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t> order(shapes.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<float>> data(shapes.size());
    std::vector<std::shared_ptr<Operation>> ops(shapes.size());
    for (const size_t i : order) {
      data[i].resize(shapes[i].elements);
      for (size_t j = 0; j < data[i].size(); ++j) data[i][j] = value(j, rank);
      auto* bytes = reinterpret_cast<std::byte*>(data[i].data());
      ops[i] =
          job.clients[rank]->push_pull(tensors[i], bytes, bytes, static_cast<int32_t>(random() % 8), false);
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      CHECK(ops[i]->wait_for(kPatienceNs));
      CHECK_EQ(ops[i]->failure().message, std::string());
      for (size_t j = 0; j < data[i].size(); ++j) {
        const float expected = static_cast<float>(j % 7 + 1) * factor;
        if (data[i][j] != expected) {
          CHECK_EQ(data[i][j], expected);
          return;
        }
      }
    }
  }
}

inline void sums_are_exact(JobOptions options, uint64_t seed, int rounds = 12) {
  Job job(options);
  std::mt19937_64 random(seed);
  std::vector<Shape> shapes;
  for (uint32_t id = 0; id < 24; ++id) {
    const uint64_t large = options.compressed ? 60'000 : 400'000;
    const uint64_t most = id % 8 == 0 ? large : id % 3 == 0 ? 20'000 : 200;
    shapes.push_back({id, random() % most + (id % 5 == 0 ? 0 : 1)});
  }
  std::vector<std::thread> threads;
  for (uint16_t rank = 0; rank < options.workers; ++rank) {
    threads.emplace_back([&, rank] { push_rounds(job, rank, options.workers, shapes, rounds, seed); });
  }
  for (auto& thread : threads) thread.join();
}

// The memory of an operation is freed the moment it is done: the sanitizers see a late access.
inline void endings_let_go_of_memory(JobOptions options, uint64_t seed, int repeats) {
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    Job job(options);
    const size_t bytes = options.compressed ? 1 << 20 : 4 << 20;
    const int way = repeat % 5;
    auto t0 = job.declare(0, 1, DType::f32, bytes);
    auto t1 = job.declare(1, 1, DType::f32, bytes);
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::shared_ptr<Operation>> ops;
    for (int k = 0; k < 3; ++k) {  // the second and third wait for the first: one round at a time
      memory.emplace_back(bytes);
      ops.push_back(job.clients[0]->push_pull(t0, memory.back().data(), memory.back().data(), 0, true));
    }
    std::vector<std::byte> other(bytes);
    std::shared_ptr<Operation> op1;
    if (way != 0) op1 = job.clients[1]->push_pull(t1, other.data(), other.data(), 0, true);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    switch (way) {
      case 0:
        job.server->depart(1);
        break;
      case 1:
        job.clients[0]->fail({FailureKind::lost, "somebody died", Role::worker, 1, "here"});
        break;
      case 2:
        job.clients[0]->fail_tensor(1, "declared otherwise elsewhere");
        break;
      case 3:
        job.clients[0]->close();
        break;
      case 4:
        job.server->close();
        job.clients[0]->fail({FailureKind::lost, "server died", Role::server, 0, "here"});
        break;
    }
    for (size_t k = 0; k < ops.size(); ++k) {
      CHECK(ops[k]->wait_for(kPatienceNs));
      memory[k] = {};
    }
    job.clients[1]->close();
    if (op1) CHECK(op1->wait_for(kPatienceNs));
    other = {};
    for (const Event& event : job.server->events().drain()) {
      if (event.kind == FailureKind::protocol)
        CHECK_EQ(event.text, std::string());  // memory that is gone is no crime
    }
  }
}

}  // namespace byteps::testing
