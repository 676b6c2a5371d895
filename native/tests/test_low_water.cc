// A slow link brings a payload in many small parts, and the loop sleeps until the last one.
#include <future>
#include <numeric>

#include "base/epoll_loop.h"
#include "base/error.h"
#include "tests/check.h"
#include "tests/sockets.h"

using namespace byteps;
using byteps::testing::connected_pair;
using byteps::testing::Wire;

namespace {

constexpr size_t kPayloadBytes = 48 * 1024, kPartBytes = 512;

// Receives frames in a loop of its own; counts how often the loop was woken.
class Receiver final : public EventLoop::Owner, public FrameSource, public FrameSink, public Link::Watcher {
 public:
  explicit Receiver(Fd fd) : loop_(*this, "receiver") {
    link_ = tcp_endpoint(std::move(fd))->open(loop_, {7, 1, false}, *this, *this, *this);
    loop_.start();
  }
  ~Receiver() override { loop_.stop(); }

  std::future<void> frames(int count) {
    left_ = count;
    return (all_ = {}).get_future();
  }
  std::vector<std::byte> payload = std::vector<std::byte>(kPayloadBytes);
  std::atomic<int> wakes{0};
  std::atomic<bool> ended{false};

 private:
  void on_batch_end() override { ++wakes; }
  int64_t next_deadline_ns() const override { return EventLoop::kNever; }
  void on_deadline(int64_t) override {}
  void on_exception(const char*) noexcept override {}
  bool next(OutFrame&) override { return false; }
  std::byte* begin(const Header& header) override { return header.length > 0 ? payload.data() : nullptr; }
  void end(const Header&, bool) override {
    if (--left_ == 0) all_.set_value();
  }
  void on_end(Link&, Link::End, const std::string&) override {
    ended = true;
    all_.set_value();
  }

  EpollLoop loop_;
  std::shared_ptr<Link> link_;
  std::promise<void> all_;
  std::atomic<int> left_{0};
};

Header push_header(uint32_t length) {
  Header header{};
  header.type = FrameType::push;
  header.job = 7;
  header.epoch = 1;
  header.length = length;
  seal(header);
  return header;
}

void write_all(const Fd& fd, const void* data, size_t bytes) {
  CHECK_EQ(::send(fd.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

bool soon(std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
}

}  // namespace

TEST(a_payload_in_small_parts_wakes_the_loop_once_it_is_there) {
  auto [ours, theirs] = connected_pair(Wire::tcp);
  Receiver receiver(std::move(ours));
  std::vector<std::byte> sent(kPayloadBytes);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
  auto done = receiver.frames(1);
  const Header header = push_header(kPayloadBytes);
  write_all(theirs, &header, kHeaderBytes);
  for (size_t at = 0; at < kPayloadBytes; at += kPartBytes) {
    write_all(theirs, sent.data() + at, kPartBytes);
    std::this_thread::yield();  // the loop may run now, and should not
  }
  CHECK(soon(done));
  CHECK(receiver.payload == sent);
  CHECK(receiver.wakes.load() <= 8);  // for its own work, the header, the payload; 96 parts came
}

TEST(a_small_frame_after_a_large_one_is_not_waited_with) {
  auto [ours, theirs] = connected_pair(Wire::tcp);
  Receiver receiver(std::move(ours));
  const std::vector<std::byte> sent(kPayloadBytes);
  for (int turn = 0; turn < 3; ++turn) {
    auto done = receiver.frames(2);
    const Header large = push_header(kPayloadBytes), small = push_header(0);
    write_all(theirs, &large, kHeaderBytes);
    write_all(theirs, sent.data(), kPayloadBytes / 2);
    std::this_thread::yield();
    write_all(theirs, sent.data(), kPayloadBytes / 2);
    write_all(theirs, &small, kHeaderBytes);
    CHECK(soon(done));
  }
}

TEST(the_end_of_the_stream_is_noticed_though_more_was_waited_for) {
  auto [ours, theirs] = connected_pair(Wire::tcp);
  Receiver receiver(std::move(ours));
  auto done = receiver.frames(1);
  const Header header = push_header(kPayloadBytes);
  write_all(theirs, &header, kHeaderBytes);
  write_all(theirs, &header, kPartBytes > kHeaderBytes ? kHeaderBytes : kPartBytes);
  theirs.reset();
  CHECK(soon(done));
  CHECK(receiver.ended.load());
}
