// What a shard has done, readable from any thread while it works.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace byteps {

struct ShardCounters {
  using Counter = std::atomic<uint64_t>;
  Counter contributions{0}, results{0}, duplicates{0}, dropped{0}, errors{0};
  // Of contributions and of results, as elements and as they travelled.
  Counter pushed_bytes{0}, pushed_wire_bytes{0}, pulled_bytes{0}, pulled_wire_bytes{0};
  Counter received_bytes{0}, sent_bytes{0}, read_bytes{0}, buffer_bytes{0}, declared_bytes{0}, connections{0};

  static void bump(Counter& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

  void add_to(std::map<std::string, uint64_t>& totals) const {
    auto add = [&](const char* name, const Counter& c) { totals[name] += c.load(std::memory_order_relaxed); };
    add("contributions", contributions);
    add("results", results);
    add("duplicates", duplicates);
    add("dropped", dropped);
    add("errors", errors);
    add("pushed_bytes", pushed_bytes);
    add("pushed_wire_bytes", pushed_wire_bytes);
    add("pulled_bytes", pulled_bytes);
    add("pulled_wire_bytes", pulled_wire_bytes);
    add("received_bytes", received_bytes);
    add("sent_bytes", sent_bytes);
    add("read_bytes", read_bytes);
    add("buffer_bytes", buffer_bytes);
    add("declared_bytes", declared_bytes);
    add("connections", connections);
  }
};

}  // namespace byteps
