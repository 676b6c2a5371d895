// Payloads by address: exact, dropped when the sender gave them up, refused when they make no sense.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/tuning.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/raw_peer.h"
#include "transport/shm/lease.h"
#include "transport/shm/peer_memory.h"

using namespace byteps;
using namespace byteps::testing;

namespace {

constexpr size_t kPage = 4096;
constexpr int64_t kPatienceNs = 30 * kNanosecondsPerSecond;
using Copied = PeerMemory::Copied;

uint64_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// Pages of which the last cannot be touched.
struct Pages {
  explicit Pages(size_t count)
      : bytes(count * kPage),
        data(static_cast<std::byte*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    CHECK_EQ(::mprotect(data + bytes - kPage, kPage, PROT_NONE), 0);
  }
  ~Pages() { ::munmap(data, bytes); }
  const size_t bytes;
  std::byte* const data;
};

struct Server {
  explicit Server(bool asynchronous = false, bool deterministic = true) {
    AggregatorSettings settings;
    settings.job = Job::kJob;
    settings.epoch = byteps::testing::epoch_of(Job::kEpoch, 2);
    settings.asynchronous = asynchronous;
    settings.deterministic = deterministic;
    aggregator = std::make_unique<Aggregator>(settings);
    byteps::testing::declare(*aggregator, 1, kBytes);
    for (uint16_t rank = 0; rank < 2; ++rank) peers[rank] = connect(rank);
  }
  std::unique_ptr<RawPeer> connect(uint16_t rank, pid_t pid = ::getpid()) {
    auto peer = std::make_unique<RawPeer>(Job::kJob, Job::kEpoch, rank);
    aggregator->attach(0, rank, peer->other_end(), false, pid);
    return peer;
  }
  Event event() {
    pollfd waiting{aggregator->events().fileno(), POLLIN, 0};
    while (::poll(&waiting, 1, 10'000) > 0) {
      for (Event& e : aggregator->events().drain()) {
        if (e.kind != FailureKind::none) return e;
      }
    }
    return {};
  }
  static constexpr uint64_t kBytes = 65536;
  std::unique_ptr<Aggregator> aggregator;
  std::unique_ptr<RawPeer> peers[2];
};

std::vector<float> values(float value) { return std::vector<float>(Server::kBytes / 4, value); }

const std::byte* bytes_of(const std::vector<float>& v) {
  return reinterpret_cast<const std::byte*>(v.data());
}

// The first value of a result, by whichever way it came.
float result_of(RawPeer& peer, bool by_address) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::result);
  if (!frame) return 0;
  CHECK_EQ((frame->header.flags & kFlagByAddress) != 0, by_address);
  if (!by_address) return frame->floats()[0];
  Offer offer;
  std::memcpy(&offer, frame->payload.data(), kOfferBytes);
  auto out = values(0);
  CHECK(PeerMemory(::getpid()).copy(out.data(), offer, Server::kBytes) == Copied::yes);
  return out[0];
}

void expect_resend(RawPeer& peer) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::resend);
}

}  // namespace

TEST(memory_of_another_process) {
  int started[2], stop[2];
  CHECK_EQ(::pipe(started) | ::pipe(stop), 0);
  Pages pages(3);
  const auto [address, value] = memory_nonce();  // at the same place in the child
  const pid_t child = ::fork();
  if (child == 0) {
    std::memset(pages.data, 7, 2 * kPage);  // its own copy of the page
    char c = 1;
    if (::write(started[1], &c, 1) != 1 || ::read(stop[0], &c, 1) != 1) ::_exit(1);
    ::_exit(pages.data[kPage] == std::byte{9} ? 0 : 2);
  }
  char c = 0;
  CHECK_EQ(::read(started[0], &c, 1), ssize_t{1});
  PeerMemory peer(child);
  std::vector<std::byte> copy(3 * kPage);
  CHECK(peer.read(copy.data(), address_of(pages.data), 2 * kPage));
  CHECK(copy[0] == std::byte{7} && copy[2 * kPage - 1] == std::byte{7});
  CHECK(pages.data[0] == std::byte{0});
  CHECK(!peer.read(copy.data(), address_of(pages.data), 3 * kPage));  // part of it can be read
  CHECK_EQ(peer.error(), EFAULT);
  CHECK(!peer.read(copy.data(), 8, 8));
  CHECK(can_read(child, address, value));
  CHECK(!can_read(child, address, value + 1));
  CHECK(!can_read(0, address, value));
  const std::byte nine{9};
  CHECK(peer.write(address_of(pages.data + kPage), &nine, 1));
  CHECK_EQ(::write(stop[1], &c, 1), ssize_t{1});
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  Offer offer{address_of(pages.data), address, value};
  CHECK(peer.copy(copy.data(), offer, 8) == Copied::gone);
  for (const int fd : {started[0], started[1], stop[0], stop[1]}) ::close(fd);
}

TEST(an_offer_is_good_until_it_is_withdrawn) {
  PeerMemory own(::getpid());
  Pages pages(2);
  Lease lease;
  std::vector<std::byte> out(2 * kPage);
  const Offer offer = lease.offer(pages.data);
  CHECK(own.copy(out.data(), offer, kPage) == Copied::yes);
  CHECK(own.copy(out.data(), offer, 2 * kPage) == Copied::impossible);
  CHECK_EQ(own.error(), EFAULT);
  CHECK(own.copy(out.data(), {offer.address, 8, offer.ticket}, kPage) == Copied::impossible);
  lease.withdraw();
  CHECK(own.copy(out.data(), offer, kPage) == Copied::withdrawn);
  CHECK(own.copy(out.data(), offer, 2 * kPage) == Copied::withdrawn);  // as if it had been unmapped
  CHECK(own.copy(out.data(), lease.offer(pages.data), kPage) == Copied::yes);
  CHECK(can_offer(pages.data));
  CHECK(!can_offer(pages.data + kPage));
}

TEST(results_go_back_as_the_contribution_came) {
  Server server;
  Lease lease;
  const auto one = values(1), four = values(4);
  for (uint32_t round = 0; round < 3; ++round) {
    server.peers[0]->push_offer(1, round, lease.offer(bytes_of(one)));
    server.peers[1]->push(1, round, four);
    CHECK_EQ(result_of(*server.peers[0], true), 5.0f);
    CHECK_EQ(result_of(*server.peers[1], false), 5.0f);
  }
  // A repeated push of a round that is over gets the same result again, the same way.
  server.peers[0]->push_offer(1, 2, lease.offer(bytes_of(one)));
  CHECK_EQ(result_of(*server.peers[0], true), 5.0f);
  server.peers[0]->push(1, 2, one);
  CHECK_EQ(result_of(*server.peers[0], false), 5.0f);
  CHECK_EQ(server.aggregator->counters().at("read_bytes"), 3 * Server::kBytes);
}

TEST(asynchronous_values_go_over_the_socket) {
  Server server(true);
  Lease lease;
  const auto one = values(1);
  server.peers[0]->push_offer(1, 0, lease.offer(bytes_of(one)));
  CHECK_EQ(result_of(*server.peers[0], false), 1.0f);
  const Offer void_offer = lease.offer(bytes_of(one));
  lease.withdraw();
  server.peers[0]->push_offer(1, 1, void_offer);
  expect_resend(*server.peers[0]);
  server.peers[0]->push_offer(1, 1, lease.offer(bytes_of(one)));
  CHECK_EQ(result_of(*server.peers[0], false), 2.0f);
}

TEST(what_was_given_up_is_asked_for_again) {
  for (const bool deterministic : {true, false}) {
    for (const uint16_t late : {0, 1}) {
      Server server(false, deterministic);
      Lease lease;
      auto memory = std::make_unique<Pages>(Server::kBytes / kPage + 2);
      const Offer void_offer = lease.offer(memory->data);
      lease.withdraw();
      memory.reset();
      const auto one = values(1), four = values(4);
      RawPeer& first = *server.peers[late];
      RawPeer& second = *server.peers[1 - late];
      // Before the round is open and after it, in its turn and before it.
      first.push_offer(1, 0, void_offer);
      expect_resend(first);
      second.push_offer(1, 0, lease.offer(bytes_of(four)));
      first.push_offer(1, 0, void_offer);
      expect_resend(first);
      first.push_offer(1, 0, lease.offer(bytes_of(one)));
      CHECK_EQ(result_of(first, true), 5.0f);
      CHECK_EQ(result_of(second, true), 5.0f);
      CHECK_EQ(server.aggregator->counters().at("dropped"), uint64_t{2});
    }
  }
}

TEST(a_worker_that_offers_what_is_not_there_loses_its_connection_and_is_named) {
  Server server;
  Lease lease;
  Pages pages(Server::kBytes / kPage + 1);
  const auto one = values(1), four = values(4);
  const Offer good = lease.offer(bytes_of(one));
  struct Case {
    Offer offer;
    const char* words;
  };
  for (const Case& each : {Case{{8, good.lease, good.ticket}, "Bad address"},
                           Case{lease.offer(pages.data + kPage), "Bad address"},
                           Case{{good.address, 8, good.ticket}, "Bad address"},
                           Case{{~uint64_t{0} - 4, good.lease, good.ticket}, "Bad address"}}) {
    RawPeer& bad = *server.peers[1];
    bad.push_offer(1, 0, each.offer);
    CHECK(!bad.receive() && bad.ended());
    const Event event = server.event();
    CHECK_EQ(event.kind, FailureKind::protocol);
    CHECK_EQ(event.number, 1);
    for (const char* part : {"PUSH: cannot read 65536 bytes of t1", "round 0", "worker 1", each.words}) {
      if (event.text.find(part) == std::string::npos) CHECK_EQ(event.text, std::string(part));
    }
    server.peers[1] = server.connect(1);
  }
  server.peers[0]->push_offer(1, 0, good);  // nobody else is disturbed
  server.peers[1]->push(1, 0, four);
  CHECK_EQ(result_of(*server.peers[0], true), 5.0f);
  CHECK_EQ(result_of(*server.peers[1], false), 5.0f);
}

TEST(a_worker_that_has_died_is_lost_and_not_guilty) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  CHECK_EQ(::waitpid(child, nullptr, 0), child);
  Server server;
  Lease lease;
  const auto one = values(1);
  server.peers[1] = server.connect(1, child);
  server.peers[1]->push_offer(1, 0, lease.offer(bytes_of(one)));
  const Event event = server.event();
  CHECK_EQ(event.kind, FailureKind::lost);
  CHECK(event.text.find("No such process") != std::string::npos);
}

TEST(by_address_must_be_agreed) {
  Server server;
  Lease lease;
  const auto one = values(1);
  server.peers[1] = server.connect(1, 0);
  server.peers[1]->push_offer(1, 0, lease.offer(bytes_of(one)));
  const Event event = server.event();
  CHECK_EQ(event.kind, FailureKind::protocol);
  CHECK(event.text.find("not agreed") != std::string::npos);
}

TEST(results_of_a_server_that_has_closed_are_not_taken) {
  Server server;
  Lease lease;
  const auto one = values(1), four = values(4);
  server.peers[0]->push_offer(1, 0, lease.offer(bytes_of(one)));
  server.peers[1]->push_offer(1, 0, lease.offer(bytes_of(four)));
  const auto frame = server.peers[0]->receive();
  CHECK(frame && (frame->header.flags & kFlagByAddress));
  if (!frame) return;
  Offer offer;
  std::memcpy(&offer, frame->payload.data(), kOfferBytes);
  server.aggregator->close();
  auto out = values(0);
  const Copied copied = PeerMemory(::getpid()).copy(out.data(), offer, Server::kBytes);
  CHECK(copied == Copied::withdrawn || copied == Copied::impossible);
}

TEST(only_large_pieces_go_by_address_and_counters_tell_them_apart) {
  Job job({.workers = 2, .by_address = true, .shards = 1});
  const uint64_t small = tuning::kByAddressBytes - 4, large = 4 * tuning::kPieceBytes;
  for (const uint64_t bytes : {small, large}) {
    std::vector<std::vector<float>> data(2, std::vector<float>(bytes / 4, 2.0f));
    std::vector<std::shared_ptr<Operation>> ops;
    for (uint16_t rank = 0; rank < 2; ++rank) {
      auto* at = reinterpret_cast<std::byte*>(data[rank].data());
      const uint32_t id = bytes == small ? 1 : 2;
      ops.push_back(job.clients[rank]->push_pull(job.declare(rank, id, DType::f32, bytes), at, at, 0, false));
    }
    for (auto& op : ops) CHECK(op->wait_for(kPatienceNs));
    CHECK_EQ(data[0].back(), 4.0f);
    CHECK_EQ(data[1].front(), 4.0f);
  }
  CHECK_EQ(job.server->counters().at("read_bytes"), 2 * large);
  for (const auto& client : job.clients) {
    const auto counters = client->counters();
    CHECK_EQ(counters.at("pushed_bytes"), small + large);
    CHECK_EQ(counters.at("pulled_bytes"), small + large);
    CHECK(counters.at("wire_sent_bytes") < 2 * small);
  }
}

TEST(memory_that_the_kernel_shows_to_nobody_goes_over_the_socket) {
  // Processors let a process read what it may write, but the kernel does not let another one: like the memory
  // of a device.
  const uint64_t bytes = 16 * kPage;
  auto* data = static_cast<float*>(::mmap(nullptr, bytes, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (size_t i = 0; i < bytes / 4; ++i) data[i] = 3.0f;
  CHECK(!can_offer(data));
  Job job({.workers = 1, .by_address = true, .shards = 1});
  std::vector<float> out(bytes / 4);
  auto op =
      job.clients[0]->push_pull(job.declare(0, 1, DType::f32, bytes), reinterpret_cast<std::byte*>(data),
                                reinterpret_cast<std::byte*>(out.data()), 0, false);
  CHECK(op->wait_for(kPatienceNs));
  CHECK_EQ(op->failure().message, std::string());
  CHECK_EQ(out.back(), 3.0f);
  CHECK_EQ(job.server->counters().at("read_bytes"), uint64_t{0});
  ::munmap(data, bytes);
}
