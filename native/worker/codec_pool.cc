#include "worker/codec_pool.h"

#include <pthread.h>
#include <signal.h>

#include <string>

namespace byteps {

CodecPool::CodecPool(unsigned threads, std::function<void(const CodecJob&)> run)
    : threads_count_(threads), run_(std::move(run)) {}

void CodecPool::start() {
  sigset_t all, old;  // signals belong to the interpreter's main thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (unsigned i = 0; i < threads_count_; ++i) {
    threads_.emplace_back([this] { work(); });
    pthread_setname_np(threads_.back().native_handle(), ("bps-codec-" + std::to_string(i)).c_str());
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
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

void CodecPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const CodecJob job = waiting_.top();
    waiting_.pop();
    lock.unlock();
    run_(job);
    lock.lock();
  }
}

}  // namespace byteps
