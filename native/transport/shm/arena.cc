#include "transport/shm/arena.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "base/memory.h"
#include "base/tuning.h"

namespace byteps {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

std::byte* Arena::allocate(size_t bytes) {
  const size_t wanted = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {  // first fit: keeps what is used together
    const auto [offset, room] = *it;
    if (room < wanted) continue;
    if (wanted >= tuning::kReleaseBytes) MemoryGate::shared().ask(wanted);  // its pages are not there yet
    used_[offset] = wanted;
    if (room == wanted) {
      free_.erase(it);
    } else {
      auto rest = free_.extract(it);
      rest.key() += wanted;
      rest.mapped() -= wanted;
      free_.insert(std::move(rest));
    }
    return memory_->data() + offset;
  }
  throw OutOfMemory("no memory for " + std::to_string(bytes) +
                    " bytes in the shared memory of this rank, which has " +
                    std::to_string(memory_->bytes()));
}

// Needs no memory itself: it is called when something ends.
void Arena::free(std::byte* block) {
  std::lock_guard lock(mutex_);
  auto node = used_.extract(static_cast<size_t>(block - memory_->data()));
  if (!node) throw std::invalid_argument("not a block of this arena");
  const size_t offset = node.key();
  size_t& bytes = node.mapped();
  if (bytes >= tuning::kReleaseBytes) {
    const size_t first = (offset + kPageBytes - 1) / kPageBytes * kPageBytes;
    const size_t last = (offset + bytes) / kPageBytes * kPageBytes;
    memory_->release(first, last - first);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.insert(std::move(node));
}

size_t Arena::used_bytes() const {
  std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const auto& [_, bytes] : used_) total += bytes;
  return total;
}

}  // namespace byteps
