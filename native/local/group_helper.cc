// The helper thread of a rank: does the work of operations that nobody waits for.
#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "local/group.h"

namespace byteps {
namespace {

constexpr int64_t kForeverNs = 3600 * kNanosecondsPerSecond;

}  // namespace

void LocalGroup::help() {
  while (!closed_.load(std::memory_order_acquire)) {
    try {
      help_once();
    } catch (const std::bad_alloc& lack) {  // whoever waits for an operation helps it along, too
      events_->log(kError, lack.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

void LocalGroup::help_once() {
  if (look_around()) return;
  const uint32_t prepared = bell(own()).prepare();
  if (closed_.load(std::memory_order_acquire) || look_around()) {
    bell(own()).cancel();
  } else {
    bell(own()).sleep(prepared, kForeverNs);
  }
}

bool LocalGroup::look_around() {
  std::vector<std::shared_ptr<GroupOperation>> active;
  {
    std::lock_guard lock(mutex_);
    active = active_;
  }
  std::stable_sort(active.begin(), active.end(),
                   [](const auto& a, const auto& b) { return a->priority > b->priority; });
  bool did = false;
  for (const auto& op : active) {
    const SlotView& slot = op->shared.slot;
    if (settings_.has_parent) {
      if (slot.is_open(op->round) && !op->posted.exchange(true)) {
        op->send_pieces();
        did = true;
      }
    } else if (slot.claimable(op->round, parts_of(*op))) {
      work_on(*op);
      did = true;
    }
    if (slot.over(op->round) && slot.entry(own()).wants_bell.load(std::memory_order_relaxed))
      did |= poll(*op);
  }
  return did;
}

}  // namespace byteps
