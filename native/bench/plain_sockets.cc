#include "bench/plain_sockets.h"

#include <sys/socket.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <exception>
#include <mutex>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace byteps::bench {
namespace {

struct Slice {
  std::size_t begin = 0;  // in elements
  std::size_t count = 0;
};

// Stream `index` of `total` moves this part of a tensor of `elements`.
Slice slice_of(std::size_t elements, std::size_t index, std::size_t total) {
  const std::size_t begin = elements * index / total;
  return {begin, elements * (index + 1) / total - begin};
}

[[noreturn]] void fail(const char* operation, int fd, std::size_t missing, const char* reason) {
  throw std::runtime_error(std::string("plain sockets: ") + operation + " on fd " + std::to_string(fd) +
                           ", " + std::to_string(missing) + " bytes missing: " + reason);
}

void fail_errno(const char* operation, int fd, std::size_t missing) {
  if (errno == EINTR) return;
  if (errno == EAGAIN || errno == EWOULDBLOCK) fail(operation, fd, missing, "time-out of the socket");
  fail(operation, fd, missing, std::system_category().message(errno).c_str());
}

void read_all(int fd, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, MSG_WAITALL);  // one wake-up for the whole piece
    if (got == 0) fail("read", fd, bytes, "the peer closed the connection");
    if (got < 0) {
      fail_errno("read", fd, bytes);
      continue;
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void write_all(int fd, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0) {
      fail_errno("write", fd, bytes);
      continue;
    }
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void add(float* __restrict sum, const float* __restrict other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
}

// Runs body(0..count-1), each in a thread of its own and the first one in the caller's. The first exception
// of any of them shuts all sockets down, which releases the others, and is thrown again here.
template <typename Body>
void in_parallel(std::size_t count, std::span<const int> sockets, const Body& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](std::size_t index) {
    try {
      body(index);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!first) first = std::current_exception();
      for (const int fd : sockets) ::shutdown(fd, SHUT_RDWR);
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t index = 1; index < count; ++index) threads.emplace_back(guarded, index);
  guarded(0);
  threads.clear();  // joins
  if (first) std::rethrow_exception(first);
}

// One round with one thread: at most `window` chunks are out before the first sum is read. The caller keeps
// window * chunk below what the kernel buffers, so that two blocking writes can never wait for each other.
void windowed_round(int fd, float* data, std::size_t count, std::size_t chunk, std::size_t window) {
  const std::size_t chunks = (count + chunk - 1) / chunk;
  const auto size_of = [&](std::size_t index) {
    return std::min(chunk, count - index * chunk) * sizeof(float);
  };
  std::size_t sent = 0;
  for (std::size_t received = 0; received < chunks; ++received) {
    for (; sent < std::min(chunks, received + window); ++sent) {
      write_all(fd, data + sent * chunk, size_of(sent));
    }
    read_all(fd, data + received * chunk, size_of(received));
  }
}

// All rounds with two threads; next_round keeps the sender from running into the next round. Both use `data`
// at once, but the sum of a chunk only exists when the chunk has been sent. ThreadSanitizer cannot see that.
void threaded_rounds(int fd, float* data, std::size_t bytes, std::size_t rounds, const auto& round_done) {
  std::counting_semaphore<> next_round(0);
  const int sockets[] = {fd};
  in_parallel(2, sockets, [&](std::size_t index) {
    for (std::size_t round = 0; round < rounds; ++round) {
      if (index == 1) {
        next_round.acquire();
        write_all(fd, data, bytes);
      } else {
        next_round.release();
        try {
          read_all(fd, data, bytes);
        } catch (...) {
          next_round.release(static_cast<std::ptrdiff_t>(rounds));
          throw;
        }
        round_done();
      }
    }
  });
}

void check(std::size_t streams, const PlainShape& shape) {
  if (streams == 0) throw std::invalid_argument("plain sockets: expected at least one stream, got none");
  if (shape.nbytes % sizeof(float) != 0 || shape.chunk_bytes % sizeof(float) != 0 || shape.chunk_bytes == 0) {
    throw std::invalid_argument("plain sockets: expected nbytes and chunk_bytes in whole float32, got " +
                                std::to_string(shape.nbytes) + " and " + std::to_string(shape.chunk_bytes));
  }
}

}  // namespace

void plain_worker(std::span<const int> streams, float* data, const PlainShape& shape) {
  check(streams.size(), shape);
  const std::size_t elements = shape.nbytes / sizeof(float);
  const std::size_t chunk = shape.chunk_bytes / sizeof(float);
  std::barrier all_streams(static_cast<std::ptrdiff_t>(streams.size()));
  in_parallel(streams.size(), streams, [&](std::size_t index) {
    const auto [begin, count] = slice_of(elements, index, streams.size());
    try {
      // A slice of one chunk has nothing to overlap; a second thread would only cost two wake-ups.
      if (shape.window == 0 && count > chunk) {
        threaded_rounds(streams[index], data + begin, count * sizeof(float), shape.rounds,
                        [&] { all_streams.arrive_and_wait(); });
      } else {
        for (std::size_t round = 0; round < shape.rounds; ++round) {
          windowed_round(streams[index], data + begin, count, chunk, std::max<std::size_t>(shape.window, 1));
          all_streams.arrive_and_wait();
        }
      }
    } catch (...) {
      all_streams.arrive_and_drop();
      throw;
    }
  });
}

void plain_server(const std::vector<std::vector<int>>& streams, std::size_t first, std::size_t total,
                  const PlainShape& shape) {
  check(streams.size(), shape);
  if (first + streams.size() > total) {
    throw std::invalid_argument("plain sockets: expected at most " + std::to_string(total) +
                                " streams, got number " + std::to_string(first + streams.size()));
  }
  const std::size_t elements = shape.nbytes / sizeof(float);
  const std::size_t chunk = shape.chunk_bytes / sizeof(float);
  std::vector<int> sockets;
  for (const auto& workers : streams) {
    if (workers.empty()) throw std::invalid_argument("plain sockets: expected at least one worker, got none");
    sockets.insert(sockets.end(), workers.begin(), workers.end());
  }
  in_parallel(streams.size(), sockets, [&](std::size_t index) {
    const auto& workers = streams[index];
    const std::size_t count = slice_of(elements, first + index, total).count;
    std::vector<float> sum(std::min(chunk, count));
    std::vector<float> other(sum.size());
    for (std::size_t round = 0; round < shape.rounds; ++round) {
      for (std::size_t at = 0; at < count; at += chunk) {
        const std::size_t size = std::min(chunk, count - at);
        read_all(workers[0], sum.data(), size * sizeof(float));
        for (std::size_t worker = 1; worker < workers.size(); ++worker) {
          read_all(workers[worker], other.data(), size * sizeof(float));
          add(sum.data(), other.data(), size);
        }
        for (const int fd : workers) write_all(fd, sum.data(), size * sizeof(float));
      }
    }
  });
}

}  // namespace byteps::bench
