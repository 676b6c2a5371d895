// How fast the kernels are, beside memcpy: bench_reduce [repetitions]
//
// GB/s of src, the bytes of the contribution that is added, which is the rate at which a shard can take in a
// gradient; memcpy counts the bytes copied and crc32c those read. "L2": both spans together fill half of a
// 512 KB cache. "DRAM": 128 MB each. The best of the repetitions: a busy
// machine only ever takes away.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "base/crc32c.h"
#include "reduce/sum.h"

using namespace byteps;

namespace {

constexpr size_t kL2Bytes = 128 << 10;
constexpr size_t kDramBytes = 128 << 20;

int repetitions = 25;
volatile uint32_t sink;

double gigabytes_per_s(size_t bytes, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const size_t calls = std::max<size_t>(1, (size_t{8} << 20) / bytes);
  double best = 0;
  work();
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = Clock::now();
    for (size_t call = 0; call < calls; ++call) work();
    const std::chrono::duration<double> took = Clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes * calls) / took.count() / 1e9);
  }
  return best;
}

void row(const std::string& name, const std::function<void(size_t bytes)>& work) {
  std::printf("%-28s %8.1f %8.1f\n", name.c_str(), gigabytes_per_s(kL2Bytes, [&] { work(kL2Bytes); }),
              gigabytes_per_s(kDramBytes, [&] { work(kDramBytes); }));
}

// Large pages and aligned, so that what is measured is the kernel and not where the allocator put things.
std::unique_ptr<float, decltype(&std::free)> zeros(size_t bytes) {
  constexpr size_t kPage = 2 << 20;
  void* memory = std::aligned_alloc(kPage, bytes);
  if (memory == nullptr) std::abort();
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  return {static_cast<float*>(memory), &std::free};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) repetitions = std::max(1, std::atoi(argv[1]));
  // Half types widen into twice their bytes. Zeros: a repeated sum must not drift into infinities.
  const std::unique_ptr<float, decltype(&std::free)> acc = zeros(2 * kDramBytes), src = zeros(kDramBytes);
  std::printf("%-28s %8s %8s   GB/s\n", "", "L2", "DRAM");
  row("memcpy", [&](size_t bytes) { std::memcpy(acc.get(), src.get(), bytes); });
  row("crc32c", [&](size_t bytes) { sink = crc32c(src.get(), bytes); });
  row("crc32c portable", [&](size_t bytes) { sink = crc32c_portable(src.get(), bytes); });
  for (const KernelSet* set : {&best_kernels(), &generic_kernels()}) {
    const std::string prefix = std::string(set->name) + " ";
    for (size_t number = 0; number < kDTypeCount; ++number) {
      const auto dtype = static_cast<DType>(number);
      const Kernels& kernels = (*set)[dtype];
      const size_t size = size_of(dtype);
      const std::string suffix = std::string(" ") + name_of(dtype);
      row(prefix + "add" + suffix, [&](size_t bytes) { kernels.add(acc.get(), src.get(), bytes / size); });
      row(prefix + "add_average" + suffix,
          [&](size_t bytes) { kernels.add_average(acc.get(), src.get(), bytes / size, 3); });
      if (!is_half(dtype)) continue;
      row(prefix + "add_widened" + suffix,
          [&](size_t bytes) { kernels.add_widened(acc.get(), src.get(), bytes / size); });
      row(prefix + "narrow" + suffix,
          [&](size_t bytes) { kernels.narrow(src.get(), acc.get(), bytes / size); });
    }
  }
  return 0;
}
