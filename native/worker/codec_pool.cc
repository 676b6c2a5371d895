#include "worker/codec_pool.h"

#include <string>

#include "base/thread.h"

namespace byteps {

CodecPool::CodecPool(unsigned threads, std::function<void(const CodecJob&)> run)
    : threads_count_(threads), run_(std::move(run)) {}

void CodecPool::start() {
  threads_.reserve(threads_count_);
  for (unsigned i = 0; i < threads_count_; ++i) {
    threads_.push_back(start_thread("bps-codec-" + std::to_string(i), [this] { work(); }));
  }
}

void CodecPool::post(int32_t priority, const CodecJob& job) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push(priority, job);
  }
  changed_.notify_one();
}

uint32_t CodecPool::cancel(const Route& route) {
  std::lock_guard lock(mutex_);
  const size_t before = waiting_.size();
  waiting_.remove_if([&](const CodecJob& job) { return job.route == &route; });
  return static_cast<uint32_t>(before - waiting_.size());
}

void CodecPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

bool CodecPool::run_one() {
  CodecJob job;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || waiting_.empty()) return false;
    job = waiting_.take().item;
  }
  run_(job);
  return true;
}

void CodecPool::work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
    }
    run_one();
  }
}

}  // namespace byteps
