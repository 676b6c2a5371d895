#include "base/crew.h"

#include "base/thread.h"

namespace byteps {

void ThreadCrew::start() {
  threads_.reserve(count_);
  for (unsigned i = 0; i < count_; ++i) {
    threads_.push_back(start_thread(name_ + std::to_string(i), [this] { work(); }));
  }
}

void ThreadCrew::call() {
  {
    std::lock_guard lock(mutex_);
    ++calls_;
  }
  changed_.notify_one();
}

void ThreadCrew::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void ThreadCrew::work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || calls_ > 0; });
      if (stopping_) return;
      --calls_;
    }
    job_();
  }
}

}  // namespace byteps
