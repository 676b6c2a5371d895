// Compressed contributions over real sockets: what a server does with payloads, good and bad.
#include <cstring>

#include "tests/check.h"
#include "tests/job.h"
#include "tests/raw_peer.h"

using namespace byteps;
using byteps::compress::CodecKind;
using byteps::compress::DeclaredCodec;
using byteps::compress::Feedback;
using byteps::testing::Job;
using byteps::testing::JobOptions;
using byteps::testing::RawPeer;

namespace {

constexpr uint64_t kJob = 77;
constexpr uint32_t kEpoch = 4;
constexpr uint8_t kOneBit = 1, kTopK = 2;
constexpr int64_t kPatienceNs = 30'000'000'000;

DeclaredCodec codec_of(CodecKind kind, Feedback feedback = Feedback::none) {
  DeclaredCodec codec;
  codec.spec.kind = kind;
  codec.spec.k = 0.25;
  codec.feedback = feedback;
  codec.spec.feedback = feedback != Feedback::none;
  return codec;
}

struct Server {
  explicit Server(uint16_t workers, bool asynchronous = false) {
    AggregatorSettings settings;
    settings.job = kJob;
    settings.epoch = byteps::testing::epoch_of(kEpoch, workers);
    settings.asynchronous = asynchronous;
    aggregator = std::make_unique<Aggregator>(settings);
    for (uint16_t rank = 0; rank < workers; ++rank) {
      peers.push_back(std::make_unique<RawPeer>(kJob, kEpoch, rank));
      aggregator->attach(0, rank, peers.back()->other_end(), false);
    }
  }
  RawPeer& operator[](size_t rank) { return *peers[rank]; }
  void declare(uint32_t tensor, uint64_t bytes, const DeclaredCodec& codec) {
    byteps::testing::declare(*aggregator, tensor, bytes, DType::f32, codec);
  }
  std::unique_ptr<Aggregator> aggregator;
  std::vector<std::unique_ptr<RawPeer>> peers;
};

std::vector<std::byte> signs(float scale, uint8_t bits) {
  std::vector<std::byte> payload(5);
  std::memcpy(payload.data(), &scale, 4);
  payload[4] = std::byte{bits};
  return payload;
}

std::string text_of(const RawPeer::Frame& frame) {
  return {reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()};
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The result of this round has these signs and, as a scale, this.
void expect_signs(RawPeer& peer, uint32_t round, float scale, uint8_t bits) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::result);
  if (!frame || frame->header.type != FrameType::result) return;
  CHECK_EQ(frame->header.round, round);
  CHECK_EQ(frame->header.codec, kOneBit);
  CHECK(frame->payload == signs(scale, bits));
}

void expect_refused(RawPeer& peer, const char* what) {
  const auto frame = peer.receive();
  CHECK(frame && frame->header.type == FrameType::error);
  if (!frame || frame->header.type != FrameType::error) return;
  CHECK_EQ(frame->header.detail & 0xFF, static_cast<uint32_t>(FailureKind::protocol));
  const std::string text = text_of(*frame);
  CHECK(contains(text, "t1 ") && contains(text, "worker 1") && contains(text, what));
}

}  // namespace

TEST(sums_go_back_compressed_and_the_error_is_kept) {
  Server server(2);
  DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::vanilla);
  codec.spec.scaling = true;
  server.declare(1, 16, codec);
  // Decoded: {1, 1, -1, 1} + {-3, 3, -3, 3} = {-2, 4, -4, 4}: scale 3.5, and {1.5, 0.5, -0.5, 0.5} is left.
  server[0].push_compressed(1, 0, kOneBit, signs(1, 0b0100));
  server[1].push_compressed(1, 0, kOneBit, signs(3, 0b0101));
  for (size_t rank : {0, 1}) expect_signs(server[rank], 0, 3.5f, 0b0101);
  // {2, 2, 2, 2} and what was left is {3.5, 2.5, 1.5, 2.5}.
  for (size_t rank : {1, 0}) server[rank].push_compressed(1, 1, kOneBit, signs(1, 0));
  for (size_t rank : {0, 1}) expect_signs(server[rank], 1, 2.5f, 0);
}

TEST(the_learning_rate_corrects_the_servers_error) {
  Server server(1);
  DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::corrected);
  server.declare(1, 16, codec);
  // Sum {1, 1, 1, 1} each time; the scale is 1, so nothing is left. Then a scale of 1 of {1, ...} again.
  server[0].push_compressed(1, 0, kOneBit, signs(1, 0), {0, 0.5f});
  expect_signs(server[0], 0, 1, 0);
  server[0].push_compressed(1, 1, kOneBit, signs(1, 0b1111), {1, 0.25f});
  expect_signs(server[0], 1, 1, 0b1111);
}

TEST(a_repeated_contribution_counts_once_and_gets_the_same_bytes) {
  Server server(2);
  server.declare(1, 16, codec_of(CodecKind::onebit));
  server[0].push_compressed(1, 0, kOneBit, signs(1, 0b0001));
  server[0].push_compressed(1, 0, kOneBit, signs(1, 0b0001));
  server[1].push_compressed(1, 0, kOneBit, signs(1, 0b0001));
  for (size_t rank : {0, 1}) expect_signs(server[rank], 0, 1, 0b0001);
  server[1].push_compressed(1, 0, kOneBit, signs(1, 0b0001));
  expect_signs(server[1], 0, 1, 0b0001);
}

TEST(a_bad_payload_fails_its_round_for_all_and_nothing_else) {
  Server server(3);
  server.declare(1, 16, codec_of(CodecKind::onebit));
  server.declare(2, 16, codec_of(CodecKind::onebit));
  uint32_t round = 0;
  const std::vector<std::pair<std::vector<std::byte>, const char*>> bad = {
      {signs(2, 0), "a scale other than 1"},
      {signs(-1, 0), "a negative scale"},
      {signs(1, 0b10000), "bits behind the last element"},
      {{std::byte{1}}, "a payload of 1 bytes"},
  };
  for (const auto& [payload, what] : bad) {
    server[1].push_compressed(1, round, kOneBit,
                              payload);  // before its turn: found out while worker 0's is read
    server[0].push_compressed(1, round, kOneBit, signs(1, 0));
    server[2].push_compressed(1, round, kOneBit, signs(1, 0));
    for (size_t rank : {0, 1, 2}) expect_refused(server[rank], what);
    ++round;
  }
  // The tensor goes on, and so does another one.
  for (uint32_t tensor : {1, 2}) {
    for (size_t rank : {0, 1, 2}) {
      server[rank].push_compressed(tensor, tensor == 1 ? round : 0, kOneBit, signs(1, 0b0010));
    }
    for (size_t rank : {0, 1, 2}) expect_signs(server[rank], tensor == 1 ? round : 0, 1, 0b0010);
  }
}

TEST(bad_indices_of_topk_are_refused) {
  Server server(2);
  server.declare(1, 16, codec_of(CodecKind::topk));  // one of four elements: k, a value, one Rice code
  std::vector<std::byte> payload(9);
  const uint32_t count = 1;
  const float value = 5;
  std::memcpy(payload.data(), &count, 4);
  std::memcpy(payload.data() + 4, &value, 4);
  payload[8] = std::byte{0b00010};  // a zero, a one, two low bits: 4, one beyond the end
  server[0].push_compressed(1, 0, kTopK, payload);
  server[1].push_compressed(1, 0, kTopK, payload);
  const auto frame = server[0].receive();
  CHECK(frame && frame->header.type == FrameType::error && contains(text_of(*frame), "worker 0"));
}

TEST(lengths_that_cannot_be_end_the_connection) {
  for (const size_t bytes : {size_t{0}, size_t{6}, size_t{1} << 20}) {
    Server server(1);
    server.declare(1, 16, codec_of(CodecKind::onebit));
    server[0].push_compressed(1, 0, kOneBit, std::vector<std::byte>(bytes));
    CHECK(!server[0].receive() && server[0].ended());
  }
}

TEST(another_codec_or_none_ends_the_connection) {
  for (const uint8_t codec : {uint8_t{0}, kTopK, uint8_t{200}}) {
    Server server(1);
    server.declare(1, 16, codec_of(CodecKind::onebit));
    server[0].push_compressed(1, 0, codec, signs(1, 0));
    CHECK(!server[0].receive() && server[0].ended());
  }
}

TEST(a_codec_that_cannot_be_ends_the_connection) {
  DeclaredCodec huge = codec_of(CodecKind::topk);
  huge.spec.k = -1;
  Server server(1);
  server.declare(1, 16, huge);
  server[0].push_compressed(1, 0, kTopK, signs(1, 0));
  CHECK(!server[0].receive() && server[0].ended());
}

TEST(different_steps_are_a_conflict) {
  Server server(2);
  server.declare(1, 16, codec_of(CodecKind::onebit));
  server[0].push_compressed(1, 0, kOneBit, signs(1, 0), {5, 0});
  server[1].push_compressed(1, 0, kOneBit, signs(1, 0), {6, 0});
  for (size_t rank : {0, 1}) {
    const auto frame = server[rank].receive();
    CHECK(frame && frame->header.type == FrameType::error && contains(text_of(*frame), "step 5"));
  }
}

TEST(asynchronous_contributions_are_compressed_and_values_are_whole) {
  Server server(2, true);
  server.declare(1, 16, codec_of(CodecKind::onebit));
  server[0].push_compressed(1, 0, kOneBit, signs(1, 0b0001));
  auto frame = server[0].receive();
  CHECK(frame && frame->header.type == FrameType::result && frame->header.codec == 0);
  if (frame) CHECK_EQ(frame->floats()[0], -1.0f);
  server[1].push_compressed(1, 0, kOneBit, signs(1, 0b0010));
  frame = server[1].receive();
  CHECK(frame && frame->payload.size() == 16);
  if (frame) CHECK(frame->floats()[0] == 0 && frame->floats()[1] == 0 && frame->floats()[2] == 2);
}

TEST(a_broadcast_of_a_compressed_tensor_is_exact) {
  Job job(JobOptions{.workers = 2, .codec_threads = 1});
  const DeclaredCodec codec = codec_of(CodecKind::onebit, Feedback::vanilla);
  constexpr size_t kElements = 600'000;
  std::vector<float> data[2] = {std::vector<float>(kElements, 1.25f), std::vector<float>(kElements, 9)};
  std::shared_ptr<Operation> ops[2];
  for (uint16_t rank : {0, 1}) {
    auto tensor = job.declare(rank, 3, DType::f32, kElements * 4, codec);
    ops[rank] = job.clients[rank]->broadcast(tensor, reinterpret_cast<std::byte*>(data[rank].data()), 0, 0);
  }
  for (auto& op : ops) {
    CHECK(op->wait_for(kPatienceNs));
    CHECK_EQ(op->failure().message, std::string());
  }
  CHECK(data[1] == std::vector<float>(kElements, 1.25f));
}
