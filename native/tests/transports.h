// What test_transports.cc needs of a transport, and the transports that it knows. Another one is a class here
// and a line in TRANSPORT_TEST.
#pragma once

#include <sys/socket.h>

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/epoll_loop.h"
#include "tests/check.h"
#include "tests/sockets.h"
#include "transport/endpoint.h"
#include "transport/sealed/sealed_endpoint.h"
#include "transport/sim/network.h"
#include "transport/sim/sim_stream.h"
#include "transport/sim/wire.h"
#include "transport/tcp/tcp_stream.h"

namespace byteps::testing {

using Payload = std::vector<std::byte>;

// One end: a loop that the test turns by hand, a source and a sink that keep books.
class Member final : public EventLoop::Owner, public FrameSource, public FrameSink, public Link::Watcher {
 public:
  struct Got {
    Header header;
    Payload payload;
    bool landed;
  };

  Member() : loop(*this, "member") {}

  void open(std::unique_ptr<Endpoint> endpoint, const LinkOptions& options) {
    link = endpoint->open(loop, options, *this, *this, *this);
  }
  // The payload stays the caller's.
  void queue(uint64_t key, const Payload& payload) {
    Header header;
    header.key = key;
    queue(header, payload);
  }
  void queue(Header header, const Payload& payload) {
    if (header.type == FrameType{}) header.type = FrameType::push;
    header.length = static_cast<uint32_t>(payload.size());
    waiting.push_back(OutFrame{header, payload.data(), {}});
  }

  EpollLoop loop;
  std::shared_ptr<Link> link;
  std::deque<OutFrame> waiting;
  size_t pulled = 0;  // frames that the link has taken
  size_t begun = 0;   // frames that have begun to arrive
  std::vector<Got> got;
  std::optional<Link::End> ended;
  std::string reason;
  int ends = 0;
  std::string exception;
  // What the test does beside, in these callbacks.
  std::function<void()> on_next = [] {}, on_begin = [] {}, on_frame = [] {}, on_ended = [] {};
  Payload* landing = nullptr;  // where payloads go, if the test wants to know

 private:
  bool next(OutFrame& out) override {
    on_next();
    if (waiting.empty()) return false;
    out = std::move(waiting.front());
    waiting.pop_front();
    ++pulled;
    return true;
  }
  std::byte* begin(const Header& header) override {
    ++begun;
    coming_.resize(landing ? 0 : header.length);
    on_begin();
    if (landing) landing->resize(header.length);
    return landing ? landing->data() : coming_.data();
  }
  void end(const Header& header, bool landed) override {
    got.push_back({header, landing ? *landing : coming_, landed});
    on_frame();
  }
  void on_end(Link& which, Link::End how, const std::string& why) override {
    CHECK(!which.alive());
    ++ends;
    ended = how;
    reason = why;
    on_ended();
  }
  void on_batch_end() override {}
  int64_t next_deadline_ns() const override { return EventLoop::kNever; }
  void on_deadline(int64_t) override {}
  void on_exception(const char* what) noexcept override { exception = what; }

  Payload coming_;
};

using Ends = std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Ends connect() = 0;
  virtual bool same_machine() const = 0;
  // The loops have nothing to do: waits a little for something that comes to this one. False: nothing came.
  virtual bool wait(EpollLoop& loop) = 0;
};

// Small buffers, so that a few hundred kilobytes fill them.
template <Wire kWire>
class Sockets final : public Transport {
 public:
  Ends connect() override {
    auto [first, second] = connected_pair(kWire);
    const int bytes = 64 * 1024;
    for (const int fd : {first.get(), second.get()}) {
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
      ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    return {tcp_endpoint(std::move(first)), tcp_endpoint(std::move(second))};
  }
  bool same_machine() const override { return kWire != Wire::far; }
  bool wait(EpollLoop& loop) override { return loop.turn(1); }
};

class Simulated : public Transport {
 public:
  explicit Simulated(const sim::WireOptions& options) : network_(1), options_(options) {}
  Ends connect() override {
    auto connection = network_.connect(options_);
    return {std::move(connection.first), std::move(connection.second)};
  }
  bool same_machine() const override { return options_.same_machine; }
  bool wait(EpollLoop&) override {
    if (network_.next_event_ns() == EventLoop::kNever) return false;
    network_.advance(network_.next_event_ns());
    return true;
  }

 private:
  sim::Network network_;
  const sim::WireOptions options_;
};

struct SimPlain final : Simulated {
  SimPlain() : Simulated({.same_machine = true}) {}
};
// Nothing comes in one piece.
struct SimRagged final : Simulated {
  SimRagged()
      : Simulated({.jitter_ns = 200'000,
                   .segment_bytes = 1500,
                   .ragged = true,
                   .send_bytes = 20'000,
                   .receive_bytes = 10'000}) {}
};
struct SimSlow final : Simulated {
  SimSlow() : Simulated({.delay_ns = 5'000'000, .bytes_per_s = 25e6, .segment_bytes = 9000}) {}
};

// The same streams, with encryption between them and the frames.
inline Ends sealed_ends(std::shared_ptr<ByteStream> first, std::shared_ptr<ByteStream> second,
                        sealed::Cipher cipher) {
  sealed::Key there{}, back{};
  there[0] = std::byte{1};
  back[0] = std::byte{2};
  return {sealed_endpoint(std::move(first), {cipher, there, back}),
          sealed_endpoint(std::move(second), {cipher, back, there})};
}

struct SealedTcp final : Transport {
  Ends connect() override {
    auto [first, second] = connected_pair(Wire::tcp);
    const int bytes = 64 * 1024;
    for (const int fd : {first.get(), second.get()}) {
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
      ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    return sealed_ends(std::make_shared<TcpStream>(std::move(first)),
                       std::make_shared<TcpStream>(std::move(second)), sealed::Cipher::aes_256_gcm);
  }
  bool same_machine() const override { return true; }
  bool wait(EpollLoop& loop) override { return loop.turn(1); }
};

struct SealedRagged final : Transport {
  Ends connect() override {
    const auto wire = std::make_shared<sim::Wire>(network_, options_);
    return sealed_ends(std::make_shared<sim::SimStream>(wire, 0), std::make_shared<sim::SimStream>(wire, 1),
                       sealed::Cipher::chacha20_poly1305);
  }
  bool same_machine() const override { return false; }
  bool wait(EpollLoop&) override {
    if (network_.next_event_ns() == EventLoop::kNever) return false;
    network_.advance(network_.next_event_ns());
    return true;
  }

 private:
  sim::Network network_{1};
  const sim::WireOptions options_{.jitter_ns = 200'000,
                                  .segment_bytes = 1500,
                                  .ragged = true,
                                  .send_bytes = 20'000,
                                  .receive_bytes = 10'000};
};

// Two members that are connected, and everything that happens to them.
class Pair {
 public:
  explicit Pair(Transport& transport, LinkOptions a_options = {7, 1}, LinkOptions b_options = {7, 1})
      : transport(transport) {
    auto [first, second] = transport.connect();
    a.open(std::move(first), a_options);
    b.open(std::move(second), b_options);
  }

  // Lets these go on until it is so; false: it never is.
  template <class Done>
  bool until(std::initializer_list<Member*> members, Done done) {
    for (const int64_t end = machine_now_ns() + 30 * kNanosecondsPerSecond; !done();) {
      bool busy = false;
      for (Member* member : members) busy |= member->loop.turn(0);
      if (busy || done()) continue;
      if (!transport.wait((*members.begin())->loop) && machine_now_ns() > end) return false;
    }
    return true;
  }
  template <class Done>
  bool until(Done done) {
    return until({&a, &b}, done);
  }
  // Lets these go on until nothing happens any more.
  void settle(std::initializer_list<Member*> members) {
    for (int quiet = 0; quiet < 30;) {
      bool busy = false;
      for (Member* member : members) busy |= member->loop.turn(0);
      quiet = busy || transport.wait((*members.begin())->loop) ? 0 : quiet + 1;
    }
  }
  void settle() { settle({&a, &b}); }

  Transport& transport;
  Member a, b;
};

}  // namespace byteps::testing

// A test that every transport must pass; its body gets the transport as `over`.
#define TRANSPORT_TEST(name)                                                  \
  static void name(::byteps::testing::Transport& over);                       \
  TRANSPORT_RUN(name, unix_pair, ::byteps::testing::Sockets<Wire::unix_pair>) \
  TRANSPORT_RUN(name, tcp, ::byteps::testing::Sockets<Wire::tcp>)             \
  TRANSPORT_RUN(name, far, ::byteps::testing::Sockets<Wire::far>)             \
  TRANSPORT_RUN(name, sim, ::byteps::testing::SimPlain)                       \
  TRANSPORT_RUN(name, sim_ragged, ::byteps::testing::SimRagged)               \
  TRANSPORT_RUN(name, sim_slow, ::byteps::testing::SimSlow)                   \
  TRANSPORT_RUN(name, sealed_tcp, ::byteps::testing::SealedTcp)               \
  TRANSPORT_RUN(name, sealed_ragged, ::byteps::testing::SealedRagged)         \
  static void name(::byteps::testing::Transport& over)

#define TRANSPORT_RUN(name, suffix, type)                                                                \
  static const ::byteps::check::Registration registration_##name##_##suffix{#name "_over_" #suffix, [] { \
                                                                              type transport;            \
                                                                              name(transport);           \
                                                                            }};
