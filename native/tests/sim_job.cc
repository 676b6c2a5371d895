// Whole jobs in a made time, each drawn from its seed. A job that goes wrong is told with the command that
// plays it again.
//
//   sim_job                    100 jobs, from seed 1 on
//   sim_job --jobs N --from S  so many, from this seed on
//   sim_job --seed S           this one, with what goes wrong
//   sim_job --seed S --tell    and every frame of it
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "sim/world.h"

using namespace byteps;

namespace {

struct Arguments {
  uint64_t from = 1;
  uint64_t jobs = 100;
  bool tell = false;
};

[[noreturn]] void usage(const char* program, const std::string& why) {
  std::fprintf(stderr, "%s: %s\nusage: %s [--jobs N] [--from SEED] | --seed SEED [--tell]\n", program,
               why.c_str(), program);
  std::exit(2);
}

Arguments read_arguments(int argc, char** argv) {
  Arguments read;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--tell") {
      read.tell = true;
      continue;
    }
    if (option != "--jobs" && option != "--from" && option != "--seed") usage(argv[0], "unknown: " + option);
    char* end = nullptr;
    const uint64_t number = i + 1 < argc ? std::strtoull(argv[++i], &end, 10) : 0;
    if (!end || *end != '\0') usage(argv[0], option + " needs a number");
    if (option == "--jobs") {
      read.jobs = number;
    } else {
      read.from = number;
      if (option == "--seed") read.jobs = 1;
    }
  }
  return read;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = read_arguments(argc, argv);
  const int64_t begin = machine_now_ns();
  uint64_t failed = 0, operations = 0;
  int64_t made_ns = 0;
  for (uint64_t seed = arguments.from; seed < arguments.from + arguments.jobs; ++seed) {
    const sim::Plan plan = sim::drawn_plan(seed);
    if (arguments.jobs == 1) std::printf("%s\n", text_of(plan).c_str());
    sim::World world(plan, arguments.tell ? [](const std::string& line) { std::printf("%s\n", line.c_str()); }
                                          : std::function<void(const std::string&)>{});
    const sim::Outcome outcome = world.run();
    for (const auto& history : outcome.histories) operations += history.size();
    made_ns += outcome.took_ns;
    if (arguments.jobs == 1) {
      std::printf("digest %016llx\n", static_cast<unsigned long long>(outcome.digest));
    }
    if (outcome.complaints.empty()) continue;
    ++failed;
    std::printf("%s\n", text_of(plan).c_str());
    constexpr size_t kMostTold = 20;
    for (size_t i = 0; i < outcome.complaints.size() && i < kMostTold; ++i) {
      std::printf("  %s\n", outcome.complaints[i].c_str());
    }
    std::printf("  again: %s --seed %llu\n", argv[0], static_cast<unsigned long long>(seed));
  }
  const double took_s = static_cast<double>(machine_now_ns() - begin) * 1e-9;
  std::printf("%llu jobs, %llu operations, %.0f s of their time in %.1f s of ours: %llu failed\n",
              static_cast<unsigned long long>(arguments.jobs), static_cast<unsigned long long>(operations),
              static_cast<double>(made_ns) * 1e-9, took_s, static_cast<unsigned long long>(failed));
  return failed == 0 ? 0 : 1;
}
