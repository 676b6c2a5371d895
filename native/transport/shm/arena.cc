#include "transport/shm/arena.h"

#include <iterator>
#include <new>
#include <stdexcept>

namespace byteps {
namespace {

// A freed block of at least this much gives its pages back; a smaller one is likely to be wanted again soon.
constexpr size_t kReleaseBytes = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;

}  // namespace

std::byte* Arena::allocate(size_t bytes) {
  const size_t wanted = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {  // first fit: keeps what is used together
    const auto [offset, room] = *it;
    if (room < wanted) continue;
    free_.erase(it);
    if (room > wanted) free_[offset + wanted] = room - wanted;
    used_[offset] = wanted;
    return memory_->data() + offset;
  }
  throw std::bad_alloc();
}

void Arena::free(std::byte* block) {
  std::lock_guard lock(mutex_);
  const auto offset_of_block = static_cast<size_t>(block - memory_->data());
  const auto used = used_.find(offset_of_block);
  if (used == used_.end()) throw std::invalid_argument("not a block of this arena");
  auto [offset, bytes] = *used;
  used_.erase(used);
  if (bytes >= kReleaseBytes) {
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
  free_[offset] = bytes;
}

size_t Arena::used_bytes() const {
  std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const auto& [_, bytes] : used_) total += bytes;
  return total;
}

}  // namespace byteps
