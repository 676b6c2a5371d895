// Frames come out the same however the stream is cut, and bad streams are refused with a reason.
#include "wire/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/crc32c.h"
#include "base/error.h"
#include "tests/check.h"

using namespace byteps;

namespace {

constexpr uint64_t kJob = 99;
constexpr uint32_t kEpoch = 3;

struct Collector : FrameSink {
  std::vector<std::pair<Header, std::vector<std::byte>>> frames;
  std::vector<std::byte> landing;
  bool discard = false;
  std::byte* begin(const Header& header) override {
    landing.assign(header.length + 1, std::byte{0xEE});
    return discard ? nullptr : landing.data();
  }
  void end(const Header& header, bool landed) override {
    CHECK_EQ(landed, !discard);
    landing.resize(header.length);
    frames.emplace_back(header, landing);
  }
};

std::vector<std::byte> frame(FrameType type, size_t length, bool checksum, std::mt19937& random,
                             uint32_t epoch = kEpoch) {
  std::vector<std::byte> bytes(kHeaderBytes + length);
  for (size_t i = 0; i < length; ++i) bytes[kHeaderBytes + i] = std::byte(random());
  Header header;
  header.type = type;
  header.job = kJob;
  header.epoch = epoch;
  header.length = static_cast<uint32_t>(length);
  header.key = random();
  if (checksum) {
    header.flags |= kFlagChecksum;
    header.payload_crc = crc32c(bytes.data() + kHeaderBytes, length);
  }
  seal(header);
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  return bytes;
}

// Feeds at most `most` bytes at a time, as a socket would.
void feed(FrameReader& reader, const std::vector<std::byte>& stream, std::mt19937& random, size_t most) {
  size_t at = 0;
  while (at < stream.size()) {
    iovec windows[2];
    const int count = reader.windows(windows);
    size_t given = random() % most + 1;
    size_t total = 0;
    for (int i = 0; i < count && given > 0 && at < stream.size(); ++i) {
      const size_t n = std::min<size_t>({given, windows[i].iov_len, stream.size() - at});
      std::memcpy(windows[i].iov_base, stream.data() + at, n);
      at += n;
      given -= n;
      total += n;
      if (n < windows[i].iov_len) break;
    }
    reader.received(total);
  }
}

std::string refusal(std::vector<std::byte> stream) {
  std::mt19937 random(1);
  Collector sink;
  FrameReader reader(kJob, kEpoch, sink);
  try {
    feed(reader, stream, random, 1000);
  } catch (const WireError& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(frames_survive_every_cut) {
  std::mt19937 random(42);
  for (const size_t most : {1ul, 63ul, 64ul, 65ul, 1000ul, 70000ul, 1000000ul}) {
    std::vector<std::byte> stream;
    std::vector<std::vector<std::byte>> sent;
    for (int i = 0; i < (most < 64 ? 12 : 60); ++i) {
      const size_t lengths[] = {0, 1, 100, 16383, 16384, 20000, 262144};
      const size_t length = lengths[random() % (most < 64 ? 4 : 7)];
      sent.push_back(frame(FrameType::push, length, random() % 2, random));
      stream.insert(stream.end(), sent.back().begin(), sent.back().end());
    }
    for (const bool discard : {false, true}) {
      Collector sink;
      sink.discard = discard;
      FrameReader reader(kJob, kEpoch, sink);
      feed(reader, stream, random, most);
      CHECK(reader.at_boundary());
      CHECK_EQ(sink.frames.size(), sent.size());
      for (size_t i = 0; i < std::min(sent.size(), sink.frames.size()) && !discard; ++i) {
        CHECK(std::equal(sent[i].begin() + kHeaderBytes, sent[i].end(), sink.frames[i].second.begin(),
                         sink.frames[i].second.end()));
      }
    }
  }
}

TEST(an_abandoned_payload_is_thrown_away) {
  std::mt19937 random(3);
  const auto first = frame(FrameType::push, 100'000, false, random);
  const auto second = frame(FrameType::push, 5, false, random);
  Collector sink;
  FrameReader reader(kJob, kEpoch, sink);
  feed(reader, {first.begin(), first.begin() + 40'000}, random, 7000);
  CHECK(reader.landing() != nullptr);
  reader.abandon();
  sink.discard = true;  // what end() is told of the first
  feed(reader, {first.begin() + 40'000, first.end()}, random, 7000);
  sink.discard = false;
  feed(reader, second, random, 7000);
  CHECK_EQ(sink.frames.size(), size_t{2});
  CHECK_EQ(sink.frames[1].second.size(), size_t{5});
}

TEST(bad_streams_are_refused_with_the_broken_rule) {
  std::mt19937 random(9);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody\r\nAccept: */*\r\n\r\n";
  std::vector<std::byte> request(http.size());
  std::memcpy(request.data(), http.data(), http.size());
  CHECK(contains(refusal(request), "not our protocol"));

  auto good = frame(FrameType::push, 100, true, random);
  auto broken = [&](size_t at, uint8_t value, bool reseal) {
    auto bytes = good;
    bytes[at] = std::byte{value};
    if (reseal) {
      Header header;
      std::memcpy(&header, bytes.data(), kHeaderBytes);
      seal(header);
      std::memcpy(bytes.data(), &header, kHeaderBytes);
    }
    return refusal(bytes);
  };
  CHECK(contains(broken(4, 9, true), "version 9"));
  CHECK(contains(broken(30, 0xFF, false), "header checksum"));
  CHECK(contains(broken(5, 77, true), "unknown frame type 77"));
  CHECK(contains(broken(7, 0xFF, true), "reserved flags"));
  CHECK(contains(broken(8, 1, true), "another job"));
  CHECK(contains(broken(16, 9, true), "epoch 9"));
  CHECK(contains(broken(22, 200, true), "dtype 200"));
  CHECK(contains(broken(23, 200, true), "codec 200"));
  CHECK(contains(broken(39, 0xFF, true), "bytes, at most"));
  CHECK(contains(broken(kHeaderBytes + 3, 0, false), "payload checksum") ||
        good[kHeaderBytes + 3] == std::byte{0});
  CHECK_EQ(refusal(good), std::string());

  auto by_address = [&](FrameType type, size_t length) {
    auto bytes = frame(type, length, false, random);
    Header header;
    std::memcpy(&header, bytes.data(), kHeaderBytes);
    header.flags |= kFlagByAddress;
    seal(header);
    std::memcpy(bytes.data(), &header, kHeaderBytes);
    return refusal(bytes);
  };
  CHECK_EQ(by_address(FrameType::push, 24), std::string());
  CHECK_EQ(by_address(FrameType::push, 0), std::string());
  CHECK_EQ(by_address(FrameType::result, 24), std::string());
  CHECK(contains(by_address(FrameType::push, 8), "by address with a payload of 8 bytes, expected 24"));
  CHECK(contains(by_address(FrameType::result, 0), "by address with a payload of 0 bytes"));
  CHECK(contains(by_address(FrameType::refuse, 24), "REFUSE: cannot be by address"));
}
