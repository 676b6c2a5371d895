// The bound of `bps bench push-pull`: the same bytes between the same processes, with no protocol at all.
//
// Every worker sends `nbytes` of float32 to a summing process over plain blocking sockets and gets the sum
// back in place. No header, no key, no checksum, no declaration, no failure handling but a time-out: a
// round costs what moving and adding the bytes costs, and nothing else.
//
// A bound that is easy to beat proves nothing, so its shape is free and the benchmark looks for the fastest
// one beforehand:
//   streams      connections between a worker and the server; each moves its own slice and has its own thread
//                on the server, so that the server can use as many cores.
//   chunk_bytes  the server reads one chunk from every worker, adds it while it is in L2, and sends it to all
//                before it reads the next one.
//   window       chunks that a worker has in flight on a stream before it reads the first sum. Few bytes in
//                flight stay in the caches, which on loopback is worth more than a full pipe.
//                0: one thread sends as fast as the socket takes it and another one receives.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace byteps::bench {

struct PlainShape {
  std::size_t nbytes = 0;       // of the whole tensor; whole float32 elements
  std::size_t chunk_bytes = 0;  // whole float32 elements
  std::size_t window = 0;
  std::size_t rounds = 1;
};

// Runs `rounds` rounds in the place of the worker. `streams` are the connected sockets of this worker, `data`
// holds its contribution and afterwards the sum. A round starts when all streams have ended the one before.
// Throws std::runtime_error when a socket closes, fails or reaches its own time-out (SO_RCVTIMEO,
// SO_SNDTIMEO); the sockets are then shut down and of no further use.
void plain_worker(std::span<const int> streams, float* data, const PlainShape& shape);

// A summing process: streams[s][w] is the socket to worker w of stream first + s, out of `total` streams that
// a worker has to all summing processes together. Sums in rank order. Throws as above.
void plain_server(const std::vector<std::vector<int>>& streams, std::size_t first, std::size_t total,
                  const PlainShape& shape);

}  // namespace byteps::bench
