#include "base/buffer.h"

#include <bit>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/memory.h"

namespace byteps {
namespace {

constexpr size_t kAlignment = 64;

// Sixteen classes per power of two: at most 1/16 is wasted, and tensors of similar size share buffers.
size_t size_class(size_t bytes) {
  if (bytes <= 1024)
    return (bytes + kAlignment - 1) / kAlignment * kAlignment + (bytes == 0 ? kAlignment : 0);
  const size_t step = std::bit_floor(bytes - 1) / 16;
  return (bytes + step - 1) / step * step;
}

}  // namespace

void BufferRef::release() {
  if (buffer_ && --buffer_->references == 0) buffer_->pool->give_back(buffer_);
}

BufferRef BufferPool::take(size_t bytes, bool asks) {
  const size_t capacity = size_class(bytes);
  Buffer*& free = free_[capacity];
  if (free) return BufferRef(std::exchange(free, free->next));
  if (asks) MemoryGate::shared().ask(capacity);
  std::unique_ptr<Buffer> buffer(new Buffer{nullptr, capacity, 0u, this});  // clang 14 cannot make_unique it
  buffer->data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity));
  if (!buffer->data)
    throw OutOfMemory("no memory for " + std::to_string(capacity) + " bytes: the system has none");
  allocated_bytes_ += capacity;
  return BufferRef(buffer.release());
}

void BufferPool::give_back(Buffer* buffer) {
  Buffer*& free = free_.find(buffer->capacity)->second;  // there since it was taken
  buffer->next = std::exchange(free, buffer);
}

void BufferPool::trim() {
  for (auto& [capacity, free] : free_) {
    while (free) {
      Buffer* const buffer = std::exchange(free, free->next);
      allocated_bytes_ -= capacity;
      std::free(buffer->data);
      delete buffer;
    }
  }
}

BufferPool::~BufferPool() { trim(); }

}  // namespace byteps
