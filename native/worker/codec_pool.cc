#include "worker/codec_pool.h"

namespace byteps {

CodecPool::CodecPool(unsigned threads, Runtime& runtime, std::function<void(const CodecJob&)> run)
    : threads_(threads),
      run_(std::move(run)),
      crew_(runtime.make_crew(threads, "bps-codec-", [this] { run_one(); })) {}

void CodecPool::post(int32_t priority, const CodecJob& job) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push(priority, job);
  }
  crew_->call();
}

uint32_t CodecPool::cancel(const Route& route) {
  std::lock_guard lock(mutex_);
  const size_t before = waiting_.size();
  waiting_.remove_if([&](const CodecJob& job) { return job.route == &route; });
  return static_cast<uint32_t>(before - waiting_.size());
}

void CodecPool::run_one() {
  CodecJob job;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;  // it was taken back
    job = waiting_.take().item;
  }
  run_(job);
}

}  // namespace byteps
