#include "base/memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/fd.h"

namespace byteps {
namespace {

// A small file of the system as it is now, without allocating more than its text.
std::string read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(8192, '\0');
  const ssize_t n = file.get() < 0 ? -1 : ::read(file.get(), text.data(), text.size());
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

std::optional<uint64_t> number(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos || text.substr(0, 3) == "max") return std::nullopt;
  uint64_t value = 0;
  const auto [_, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The number behind a word that begins a line.
uint64_t field(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.substr(0, name.size()) == name) return number(line.substr(name.size())).value_or(0);
    at = end + 1;
  }
  return 0;
}

uint64_t less(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

void keep_tightest(MemoryLeft& tightest, uint64_t bytes, const std::string& limit) {
  if (bytes < tightest.bytes) tightest = {bytes, limit};
}

void look_at_rlimits(MemoryLeft& tightest) {
  const std::string statm = read_file("/proc/self/statm");
  uint64_t pages[7] = {};
  const char* at = statm.data();
  for (uint64_t& each : pages) {
    while (at < statm.data() + statm.size() && *at == ' ') ++at;
    at = std::from_chars(at, statm.data() + statm.size(), each).ptr;
  }
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    keep_tightest(tightest, less(limit.rlim_cur, pages[0] * page),
                  "its address space (RLIMIT_AS, ulimit -v) of " + std::to_string(limit.rlim_cur) + " bytes");
  }
  if (::getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    keep_tightest(tightest, less(limit.rlim_cur, pages[5] * page),
                  "its data (RLIMIT_DATA, ulimit -d) of " + std::to_string(limit.rlim_cur) + " bytes");
  }
}

// A group is limited by those above it, too. Pages of files do not count: the kernel takes them back first.
void look_at_cgroup(MemoryLeft& tightest, std::string path, const char* most, const char* now,
                    const char* cached) {
  for (;;) {
    const auto limit = number(read_file(path + "/" + most));
    const auto used = number(read_file(path + "/" + now));
    if (limit && used) {
      const std::string stat = read_file(path + "/memory.stat");
      const uint64_t files = field(stat, std::string(cached) + "inactive_file ") +
                             field(stat, std::string(cached) + "active_file ");
      keep_tightest(tightest, less(*limit, less(*used, files)),
                    "the memory cgroup " + path + " of " + std::to_string(*limit) + " bytes");
    }
    const size_t slash = path.rfind('/');
    if (path.find("/sys/fs/cgroup/") != 0 || slash == std::string::npos) return;
    path.resize(slash);
  }
}

void look_at_cgroups(MemoryLeft& tightest) {
  const std::string groups = read_file("/proc/self/cgroup");
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (kind.empty()) {
      look_at_cgroup(tightest, "/sys/fs/cgroup" + path, "memory.max", "memory.current", "");
    } else if (kind == "memory") {
      // In a container the path is often the host's, and the group itself is mounted at the top.
      look_at_cgroup(tightest, "/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes",
                     "memory.usage_in_bytes", "total_");
    }
  }
}

}  // namespace

MemoryLeft memory_left() {
  MemoryLeft tightest;
  look_at_rlimits(tightest);
  look_at_cgroups(tightest);
  const std::string info = read_file("/proc/meminfo");
  if (const uint64_t available = field(info, "MemAvailable:"); available > 0) {
    keep_tightest(tightest, (available + field(info, "SwapFree:")) * 1024, "this machine's memory");
  }
  return tightest;
}

MemoryGate& MemoryGate::shared() {
  static MemoryGate gate;
  return gate;
}

void MemoryGate::look_with(std::function<MemoryLeft()> look) {
  std::lock_guard lock(mutex_);
  look_ = std::move(look);
  spare_bytes_ = 0;
  granted_.store(0);
}

void MemoryGate::ask(size_t bytes) {
  const auto wanted = static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX));
  if (granted_.fetch_sub(wanted, std::memory_order_relaxed) >= wanted) return;
  granted_.fetch_add(wanted, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  granted_.store(0, std::memory_order_relaxed);  // also if there is nothing to grant
  const uint64_t spare = spare_after(bytes);
  granted_.store(static_cast<int64_t>(std::min(kLookBytes, spare / 8)), std::memory_order_relaxed);
}

void MemoryGate::expect(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > spare_bytes_ / 2) spare_after(bytes);
}

uint64_t MemoryGate::spare_after(size_t bytes) {
  const MemoryLeft left = look_();
  spare_bytes_ = less(left.bytes, kSpareBytes);
  if (bytes <= spare_bytes_) return spare_bytes_ - bytes;
  throw OutOfMemory("no memory for " + std::to_string(bytes) + " bytes: " + std::to_string(spare_bytes_) +
                    " are left of " + left.limit);
}

}  // namespace byteps
