#include "observe/ring.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace byteps {
namespace {

struct Registered {
  Ring ring;
  std::string thread;
  bool taken = true;
};

// Never destroyed: threads may end after everything else.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Registered>> rings;
};

Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

// Hands the ring of a thread that ends to the next one that begins.
struct Return {
  Registered* taken = nullptr;
  ~Return() {
    if (!taken) return;
    detail::own_ring = nullptr;
    std::lock_guard lock(registry().mutex);
    taken->taken = false;
  }
};

thread_local Return returned;

TraceEvent unpacked(const uint64_t words[4]) {
  TraceEvent event{.at_ns = static_cast<int64_t>(words[0])};
  event.key = words[1];
  event.round = static_cast<uint32_t>(words[2] >> 32);
  event.bytes = static_cast<uint32_t>(words[2]);
  event.took_ns = static_cast<uint32_t>(words[3] >> 32);
  event.peer = static_cast<uint16_t>(words[3] >> 16);
  event.stage = static_cast<Stage>(static_cast<uint8_t>(words[3] >> 8));
  event.note = static_cast<uint8_t>(words[3]);
  return event;
}

}  // namespace

Ring::Ring() : words_(static_cast<uint64_t*>(std::calloc(kEvents * kWords, sizeof(uint64_t)))) {
  if (!words_) throw std::bad_alloc();
}

uint64_t Ring::read(uint64_t from, std::vector<TraceEvent>& out) const {
  const uint64_t end = head_.load(std::memory_order_acquire);
  // The writer may be at event `end` now, in the slot of event end - kEvents.
  const uint64_t begin = std::max(from, end >= kEvents ? end - kEvents + 1 : 0);
  const size_t before = out.size();
  for (uint64_t i = begin; i < end; ++i) {
    uint64_t words[kWords];
    for (size_t at = 0; at < kWords; ++at) {
      words[at] = std::atomic_ref<uint64_t>(slot_of(i)[at]).load(std::memory_order_acquire);
    }
    out.push_back(unpacked(words));
  }
  const uint64_t now = head_.load(std::memory_order_acquire);
  const uint64_t whole = now >= kEvents ? now - kEvents + 1 : 0;  // those before may have been overwritten
  if (whole > begin) {
    const auto drop = static_cast<std::ptrdiff_t>(std::min(whole, end) - begin);
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(before);
    out.erase(first, first + drop);
  }
  return end;
}

std::vector<RingEvents> read_rings(const std::vector<uint64_t>& from) {
  std::vector<RingEvents> found;
  std::vector<const Ring*> rings;
  {
    std::lock_guard lock(registry().mutex);
    for (const auto& each : registry().rings) {
      found.emplace_back().thread = each->thread;
      rings.push_back(&each->ring);
    }
  }
  for (size_t i = 0; i < rings.size(); ++i) {
    const uint64_t begin = i < from.size() ? from[i] : 0;
    found[i].next = rings[i]->read(begin, found[i].events);
    found[i].lost = found[i].next - begin - found[i].events.size();
  }
  return found;
}

namespace detail {

thread_local Ring* own_ring = nullptr;

Ring* take_ring() noexcept {
  try {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    auto it = std::find_if(all.rings.begin(), all.rings.end(), [](const auto& r) { return !r->taken; });
    if (it == all.rings.end()) {
      all.rings.push_back(std::make_unique<Registered>());
      it = all.rings.end() - 1;
    }
    (*it)->thread = name;
    (*it)->taken = true;
    returned.taken = it->get();
    return own_ring = &(*it)->ring;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace detail
}  // namespace byteps
