#include "base/buffer.h"

#include <bit>
#include <cstdlib>
#include <new>

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

BufferRef BufferPool::take(size_t bytes) {
  const size_t capacity = size_class(bytes);
  auto& free = free_[capacity];
  if (!free.empty()) {
    Buffer* buffer = free.back();
    free.pop_back();
    return BufferRef(buffer);
  }
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity));
  if (!data) throw std::bad_alloc();
  allocated_bytes_ += capacity;
  return BufferRef(new Buffer{data, capacity, 0, this});
}

void BufferPool::give_back(Buffer* buffer) { free_[buffer->capacity].push_back(buffer); }

void BufferPool::trim() {
  for (auto& [capacity, buffers] : free_) {
    for (Buffer* buffer : buffers) {
      allocated_bytes_ -= capacity;
      std::free(buffer->data);
      delete buffer;
    }
    buffers.clear();
  }
}

BufferPool::~BufferPool() { trim(); }

}  // namespace byteps
