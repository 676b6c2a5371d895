// Pooled, reference-counted memory of one thread.
//
// A shard takes a buffer for every contribution and gives it back a moment later; the same few buffers go
// round and stay warm in the cache, and nothing is allocated once a job has reached its steady state.
// Neither the pool nor the counts are atomic: buffers never leave the thread that owns the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace byteps {

class BufferPool;

struct Buffer {
  std::byte* data;
  size_t capacity;  // a size class, see buffer.cc
  uint32_t references;
  BufferPool* pool;
  Buffer* next = nullptr;  // of the free ones: giving a buffer back allocates nothing, and so cannot fail
};

class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* buffer) : buffer_(buffer) {
    if (buffer_) ++buffer_->references;
  }
  BufferRef(const BufferRef& other) : BufferRef(other.buffer_) {}
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() { release(); }

  explicit operator bool() const { return buffer_ != nullptr; }
  std::byte* data() const { return buffer_->data; }
  size_t capacity() const { return buffer_ ? buffer_->capacity : 0; }
  bool shared() const { return buffer_ && buffer_->references > 1; }
  void reset() {
    release();
    buffer_ = nullptr;
  }

 private:
  void release();
  Buffer* buffer_ = nullptr;
};

class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // Throws OutOfMemory, which says how many bytes were wanted and what there is.
  BufferRef take(size_t bytes) { return take(bytes, true); }
  // Without asking the MemoryGate: a few words, which may be those that say what is lacking.
  BufferRef take_unasked(size_t bytes) { return take(bytes, false); }
  // Gives free buffers back to the system; called when tensors are retired.
  void trim();
  size_t allocated_bytes() const { return allocated_bytes_; }

 private:
  friend class BufferRef;
  BufferRef take(size_t bytes, bool asks);
  void give_back(Buffer* buffer);
  std::unordered_map<size_t, Buffer*> free_;  // by capacity: the last one given back
  size_t allocated_bytes_ = 0;
};

}  // namespace byteps
