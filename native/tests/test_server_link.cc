// What a worker sends to a server on another machine, and what it keeps back, as the server sees it.
#include <poll.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/epochs.h"
#include "tests/raw_peer.h"
#include "worker/client.h"

using namespace byteps;
using byteps::testing::RawPeer;

namespace {

constexpr uint32_t kPieceBytes = 4096;
constexpr uint64_t kJob = 1;
constexpr uint32_t kEpoch = 1;

struct Push {
  uint32_t tensor, piece;
};

// One worker and the server that it is connected to, whose part the test plays. Once the worker has seen how
// long this server takes, it has three pieces in flight at most; see Window.
class Worker {
 public:
  explicit Worker(uint64_t credit_bytes) : server_(kJob, kEpoch, 0), client_(settings(credit_bytes)) {
    client_.connect(0, 0, server_.other_end(), false, /*same_machine=*/false);
    client_.start();
  }
  ~Worker() { client_.close(); }

  std::shared_ptr<Operation> push(uint32_t tensor, uint32_t pieces, int32_t priority) {
    memory_.push_back(std::make_unique<std::vector<std::byte>>(pieces * kPieceBytes));
    std::byte* data = memory_.back()->data();
    const Cut cut{pieces * kPieceBytes, kPieceBytes};
    const std::vector<std::pair<uint16_t, uint16_t>> placement(pieces, {0, 0});
    auto& declared = declared_[tensor];
    if (!declared) {
      declared = client_.declare(tensor, "tensor." + std::to_string(tensor), DType::f32, cut, placement);
    }
    return client_.push_pull(declared, data, data, priority, false);
  }

  // The pieces that come until there is silence, as "tensor.piece".
  std::string come() {
    std::ostringstream found;
    while (const auto frame = server_.receive(100)) {
      CHECK(frame->header.type == FrameType::push);
      if (found.tellp() > 0) found << " ";
      found << tensor_of(frame->header.key) << "." << piece_of(frame->header.key);
    }
    return found.str();
  }

  void answer(const std::vector<Push>& pushes) {
    const std::vector<std::byte> sum(kPieceBytes);
    for (const Push& push : pushes) {
      Header header = frame(FrameType::result, push);
      header.received = done_bytes_ += kPieceBytes;
      server_.send(header, sum.data(), sum.size());
    }
  }
  // A whole result, or only the first bytes of its frame.
  void say_result(const Push& push, uint32_t round, size_t payload_bytes = kPieceBytes) {
    Header header = frame(FrameType::result, push);
    header.round = round;
    const std::vector<std::byte> sum(payload_bytes);
    server_.send(header, sum.data(), sum.size());
  }
  void say(FrameType type, const Push& push, std::string_view text) {
    server_.send(frame(type, push), text.data(), text.size());
  }
  // Why the connection was ended.
  std::string violation() {
    for (int i = 0; i < 100; ++i) {
      pollfd waiting{client_.events().fileno(), POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) <= 0) break;
      for (Event& event : client_.events().drain()) {
        if (event.kind == FailureKind::protocol) return event.text;
      }
    }
    return "none";
  }
  void forget_memory() { memory_.clear(); }
  RawPeer& server() { return server_; }
  void give_up(uint32_t tensor) { client_.fail_tensor(tensor, "given up"); }
  void ask_again(const Push& push) { server_.send(frame(FrameType::resend, push)); }
  void want(const Push& push) { server_.send(frame(FrameType::want, push)); }
  void give_credit(uint32_t pieces) {
    Header header;
    header.type = FrameType::credit;
    header.received = done_bytes_ += pieces * kPieceBytes;
    server_.send(header);
  }

 private:
  static ClientSettings settings(uint64_t credit_bytes) {
    ClientSettings made;
    made.job = kJob;
    made.epoch = byteps::testing::epoch_of(kEpoch, 1);
    made.credit_bytes = credit_bytes;
    return made;
  }
  Header frame(FrameType type, const Push& push) {
    Header header;
    header.type = type;
    header.dtype = static_cast<uint8_t>(DType::f32);
    header.key = make_key(push.tensor, push.piece);
    header.received = done_bytes_;
    return header;
  }

  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;  // outlives the client
  RawPeer server_;
  Client client_;
  std::map<uint32_t, std::shared_ptr<Tensor>> declared_;
  uint64_t done_bytes_ = 0;
};

}  // namespace

TEST(two_pieces_of_a_tensor_go_before_the_first_answer_and_all_others_after_it) {
  Worker worker(64 * kPieceBytes);
  const auto op = worker.push(1, 5, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.answer({{1, 1}});
  CHECK_EQ(worker.come(), std::string("1.2 1.3"));
  worker.answer({{1, 0}, {1, 2}});
  CHECK_EQ(worker.come(), std::string("1.4"));
  worker.answer({{1, 3}, {1, 4}});
  CHECK(op->wait_for(10'000'000'000));
  CHECK(!op->failure());
}

TEST(a_tensor_that_waits_for_its_first_answer_holds_nobody_up) {
  Worker worker(64 * kPieceBytes);
  worker.push(1, 5, 10);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.push(2, 3, -10);
  CHECK_EQ(worker.come(), std::string("2.0 2.1"));
  worker.answer({{2, 0}, {2, 1}});
  CHECK_EQ(worker.come(), std::string("2.2"));
}

TEST(tensors_of_one_priority_go_on_in_the_order_in_which_they_came) {
  Worker worker(4 * kPieceBytes);
  worker.push(1, 4, 0);
  worker.push(2, 4, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1 2.0 2.1"));
  worker.answer({{2, 0}, {2, 1}});  // there is room for one
  CHECK_EQ(worker.come(), std::string("2.2"));
  worker.answer({{1, 0}, {1, 1}});  // the rest of the first before the rest of the second
  CHECK_EQ(worker.come(), std::string("1.2 1.3"));
  worker.answer({{2, 2}});
  CHECK_EQ(worker.come(), std::string("2.3"));
}

TEST(what_the_server_asks_for_again_waits_for_no_answer) {
  Worker worker(64 * kPieceBytes);
  worker.push(1, 5, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.ask_again({1, 1});
  CHECK_EQ(worker.come(), std::string("1.1"));
}

TEST(what_others_wait_for_goes_first_and_once_though_there_is_no_room) {
  Worker worker(2 * kPieceBytes);
  worker.push(1, 4, 5);
  worker.push(2, 3, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.want({2, 1});
  worker.want({2, 1});  // no more than once
  CHECK_EQ(worker.come(), std::string("2.1"));
  worker.want({1, 0});  // has gone already
  worker.want({3, 0});  // is not there yet
  CHECK_EQ(worker.come(), std::string());
  worker.answer({{1, 0}, {1, 1}, {2, 1}});
  CHECK_EQ(worker.come(), std::string("1.2 1.3"));
  worker.answer({{1, 2}, {1, 3}});
  CHECK_EQ(worker.come(), std::string("2.0 2.2"));  // what was wanted does not go again in its order
}

TEST(the_first_two_of_a_tensor_go_before_its_first_answer_whatever_was_wanted_of_it) {
  Worker worker(2 * kPieceBytes);
  worker.push(1, 2, 0);
  worker.push(2, 6, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.want({2, 4});
  worker.want({2, 5});
  CHECK_EQ(worker.come(), std::string("2.4 2.5"));
  worker.answer({{1, 0}, {1, 1}});
  worker.give_credit(2);
  CHECK_EQ(worker.come(), std::string("2.0 2.1"));
}

TEST(what_went_because_it_was_wanted_leaves_no_place_in_the_order_to_the_next_operation) {
  Worker worker(kPieceBytes);
  const auto op = worker.push(1, 2, 0);
  CHECK_EQ(worker.come(), std::string("1.0"));
  worker.push(2, 3, 5);
  CHECK_EQ(worker.come(), std::string("2.0"));
  worker.answer({{2, 0}});
  worker.want({1, 1});
  CHECK_EQ(worker.come(), std::string("1.1"));
  worker.answer({{1, 0}, {1, 1}});
  CHECK(op->wait_for(10'000'000'000));
  CHECK_EQ(worker.come(), std::string("2.1"));  // there is room for nothing else
  worker.push(3, 1, 0);
  worker.push(1, 2, 0);
  worker.answer({{2, 1}});
  CHECK_EQ(worker.come(), std::string("2.2"));
  worker.answer({{2, 2}});
  CHECK_EQ(worker.come(), std::string("3.0"));
}

TEST(an_operation_that_is_given_up_takes_its_waiting_pieces_with_it) {
  Worker worker(64 * kPieceBytes);
  const auto op = worker.push(1, 5, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.give_up(1);
  CHECK(op->wait_for(10'000'000'000));
  CHECK_EQ(op->failure().message, std::string("given up"));
  worker.answer({{1, 0}, {1, 1}});  // too late: nothing follows
  CHECK_EQ(worker.come(), std::string());
  worker.push(2, 1, 0);
  CHECK_EQ(worker.come(), std::string("2.0"));
}

TEST(one_urgent_piece_goes_though_there_is_no_room_and_the_next_when_credit_came) {
  Worker worker(2 * kPieceBytes);
  worker.push(1, 4, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.push(2, 2, 1);
  CHECK_EQ(worker.come(), std::string("2.0"));
  worker.push(3, 2, 2);
  CHECK_EQ(worker.come(), std::string());
  worker.give_credit(1);
  CHECK_EQ(worker.come(), std::string("3.0"));
  worker.give_credit(3);  // everything has arrived
  CHECK_EQ(worker.come(), std::string("3.1 2.1"));
}

TEST(what_is_not_more_urgent_than_what_is_under_way_does_not_overtake) {
  Worker worker(2 * kPieceBytes);
  worker.push(1, 2, 5);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.push(2, 1, 5);
  CHECK_EQ(worker.come(), std::string());
  worker.answer({{1, 0}});
  CHECK_EQ(worker.come(), std::string("2.0"));
}

// ---- servers that break rules ----

TEST(a_result_of_what_was_not_pushed_ends_the_connection_and_not_the_process) {
  Worker worker(64 * kPieceBytes);
  const auto op = worker.push(1, 5, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  for (uint32_t piece = 5; piece-- > 0;) worker.say_result({1, piece}, 0);
  CHECK_EQ(worker.violation(),
           std::string("RESULT: tensor.1 piece 4 round 0 is answered, and was not pushed yet"));
  CHECK(!op->wait_for(0));
}

TEST(a_result_of_a_round_that_has_not_begun_ends_the_connection) {
  Worker worker(64 * kPieceBytes);
  worker.push(1, 1, 0);
  CHECK_EQ(worker.come(), std::string("1.0"));
  worker.say_result({1, 0}, 1);
  CHECK_EQ(worker.violation(),
           std::string("RESULT: tensor.1 piece 0 round 1 is answered, and was not pushed yet"));
}

TEST(a_failure_and_a_request_to_send_again_need_a_push_too) {
  for (const FrameType type : {FrameType::error, FrameType::resend, FrameType::stall}) {
    Worker worker(64 * kPieceBytes);
    worker.push(1, 5, 0);
    CHECK_EQ(worker.come(), std::string("1.0 1.1"));
    worker.say(type, {1, 4}, "");
    CHECK(worker.violation().find("was not pushed yet") != std::string::npos);
  }
}

TEST(what_is_asked_for_again_and_answered_all_the_same_leaves_nothing_behind) {
  Worker worker(2 * kPieceBytes);
  const auto op = worker.push(1, 2, 0);
  CHECK_EQ(worker.come(), std::string("1.0 1.1"));
  worker.ask_again({1, 1});  // there is no room for it
  worker.say_result({1, 0}, 0);
  worker.say_result({1, 1}, 0);
  CHECK(op->wait_for(10'000'000'000));
  CHECK(!op->failure());
  worker.push(2, 1, 0);
  worker.give_credit(2);
  CHECK_EQ(worker.come(), std::string("2.0"));
}

TEST(memory_of_what_is_answered_before_it_was_read_is_not_touched_any_more) {
  constexpr uint32_t kPieces = 62;  // what is given to the wire at once, and more than the socket takes
  Worker worker(0);
  const auto op = worker.push(1, kPieces, 0);
  CHECK(worker.server().something_comes());
  for (uint32_t piece = 0; piece < kPieces; ++piece) worker.say_result({1, piece}, 0);
  CHECK(op->wait_for(10'000'000'000));
  worker.forget_memory();
  for (uint32_t frame = 0; frame < kPieces; ++frame) {
    const auto came = worker.server().receive();
    CHECK(came && came->payload.size() == kPieceBytes);
  }
}

TEST(what_a_server_says_is_made_fit_for_people) {
  Worker worker(64 * kPieceBytes);
  const auto op = worker.push(1, 1, 0);
  CHECK_EQ(worker.come(), std::string("1.0"));
  worker.say(FrameType::error, {1, 0}, "\x1B[0m\xFF");
  CHECK(op->wait_for(10'000'000'000));
  CHECK_EQ(op->failure().message, std::string("tensor.1: ?[0m?"));
}
