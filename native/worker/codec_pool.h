// The threads that compress and decompress: as many as the user allows, the most urgent partition first.
//
// I/O threads post jobs and go on; a job that is done goes back to the thread that posted it. What waits here
// is bounded: an operation has at most one job for each of its partitions, and it is one operation at a time
// for each tensor. With no threads at all the I/O threads do the work themselves (compressed_payload.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/ready_queue.h"
#include "base/runtime.h"

namespace byteps {

struct Route;

struct CodecJob {
  enum class Kind { encode, decode } kind = Kind::encode;
  Route* route = nullptr;
  uint32_t position = 0;  // in the route's pieces
  uint32_t bytes = 0;     // decode: of the payload that has landed
};

struct CodecOutcome {
  CodecJob job{};
  enum class End { done, operation_failed, codec_failed } end = End::done;
  std::string error{};  // of a codec that failed
};

class CodecPool {
 public:
  // run: called in a thread of the pool.
  CodecPool(unsigned threads, Runtime& runtime, std::function<void(const CodecJob&)> run);
  ~CodecPool() { stop(); }

  unsigned threads() const { return threads_; }
  void start() { crew_->start(); }
  // Any thread.
  void post(int32_t priority, const CodecJob& job);
  // Takes the jobs of a route back that nobody has begun; how many there were.
  uint32_t cancel(const Route& route);
  // Jobs in flight are finished, the others stay until they are cancelled. Idempotent.
  void stop() { crew_->stop(); }

 private:
  void run_one();

  const unsigned threads_;
  const std::function<void(const CodecJob&)> run_;
  std::mutex mutex_;  // of what waits
  ReadyQueue<CodecJob> waiting_;
  std::unique_ptr<Crew> crew_;  // called once for each that waits, and for those that were taken back
};

}  // namespace byteps
