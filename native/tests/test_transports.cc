// The contract of transport/link.h and transport/endpoint.h: one suite that every transport passes.
#include <algorithm>
#include <new>
#include <random>

#include "base/error.h"
#include "tests/transports.h"

using namespace byteps;
using byteps::testing::Member;
using byteps::testing::Pair;
using byteps::testing::Payload;
using byteps::testing::Wire;

namespace {

// More than any buffer between the two ends of a transport holds.
constexpr size_t kBigBytes = 6 << 20;

Payload pattern(size_t bytes, uint32_t seed) {
  Payload payload(bytes);
  std::minstd_rand random(seed + 1);
  for (auto& byte : payload) byte = static_cast<std::byte>(random() >> 7);
  return payload;
}

// Frames of all lengths, their number as the key.
std::vector<Payload> payloads(size_t count, size_t longest, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  std::vector<Payload> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(pattern(random() % 4 == 0 ? 0 : random() % longest, static_cast<uint32_t>(i)));
  }
  return all;
}

void queue_all(Member& from, const std::vector<Payload>& all) {
  for (size_t i = 0; i < all.size(); ++i) from.queue(i, all[i]);
}

void check_got(const Member& to, const std::vector<Payload>& all) {
  CHECK_EQ(to.got.size(), all.size());
  for (size_t i = 0; i < std::min(all.size(), to.got.size()); ++i) {
    CHECK_EQ(to.got[i].header.key, i);
    CHECK(to.got[i].landed);
    CHECK(to.got[i].payload == all[i]);
  }
}

uint64_t wire_bytes(const std::vector<Payload>& all) {
  uint64_t bytes = 0;
  for (const Payload& payload : all) bytes += kHeaderBytes + payload.size();
  return bytes;
}

// One more frame arrives: the connection works.
void check_works(Pair& pair) {
  const Payload more = pattern(1000, 99);
  const size_t before = pair.b.got.size();
  pair.a.queue(4711, more);
  pair.a.link->flush();
  CHECK(pair.until([&] { return pair.b.got.size() > before; }));
  CHECK(!pair.b.got.empty() && pair.b.got.back().payload == more && pair.b.got.back().landed);
}

// b has ended like this, once, and a has heard of it.
void check_ended(Pair& pair, Link::End how) {
  CHECK(pair.until([&] { return pair.b.ends > 0; }));
  CHECK_EQ(static_cast<int>(*pair.b.ended), static_cast<int>(how));
  CHECK(!pair.b.link->alive());
  CHECK(pair.until([&] { return pair.a.ends > 0; }));
  CHECK_EQ(static_cast<int>(*pair.a.ended), static_cast<int>(Link::End::closed));
  pair.settle();
  CHECK_EQ(pair.a.ends, 1);
  CHECK_EQ(pair.b.ends, 1);
}

}  // namespace

// ---- frames

TRANSPORT_TEST(frames_arrive_whole_and_in_order) {
  Pair pair(over);
  const auto all = payloads(500, 60'000, 1);
  queue_all(pair.a, all);
  pair.a.link->flush();
  CHECK(pair.until([&] { return pair.b.got.size() == all.size(); }));
  check_got(pair.b, all);
}

TRANSPORT_TEST(many_small_frames) {
  Pair pair(over);
  const auto all = payloads(5000, 100, 2);
  queue_all(pair.a, all);
  pair.a.link->flush();
  CHECK(pair.until([&] { return pair.b.got.size() == all.size(); }));
  check_got(pair.b, all);
  CHECK_EQ(pair.b.link->traffic().received_bytes, wire_bytes(all));
}

TRANSPORT_TEST(a_large_frame_goes_in_parts) {
  Pair pair(over);
  const std::vector<Payload> all{pattern(kBigBytes, 1), pattern(10, 2), pattern(kBigBytes + 1, 3)};
  queue_all(pair.a, all);
  pair.a.link->flush();
  CHECK(pair.a.link->sending());
  CHECK(pair.a.link->traffic().sent_bytes < kBigBytes);
  CHECK(pair.until([&] { return pair.b.got.size() == all.size(); }));
  check_got(pair.b, all);
  CHECK(!pair.a.link->sending());
}

TRANSPORT_TEST(both_directions_at_once) {
  Pair pair(over);
  const auto there = payloads(200, 50'000, 4), back = payloads(200, 50'000, 5);
  queue_all(pair.a, there);
  queue_all(pair.b, back);
  pair.a.link->flush();
  pair.b.link->flush();
  CHECK(pair.until([&] { return pair.b.got.size() == there.size() && pair.a.got.size() == back.size(); }));
  check_got(pair.b, there);
  check_got(pair.a, back);
}

TRANSPORT_TEST(answers_from_inside_a_callback) {
  Pair pair(over);
  const Payload ball = pattern(3000, 6);
  for (Member* member : {&pair.a, &pair.b}) {
    member->on_frame = [member, &ball] {
      if (member->got.size() < 50) member->queue(member->got.size(), ball);
      member->link->flush();
    };
    member->on_next = [member] { member->link->flush(); };  // changes nothing: it is in one
  }
  pair.a.queue(0, ball);
  pair.a.link->flush();
  CHECK(pair.until([&] { return pair.b.got.size() == 50; }));
  CHECK(pair.b.got.back().payload == ball);
}

TRANSPORT_TEST(frames_that_come_later_are_pulled_when_they_are_flushed) {
  Pair pair(over);
  pair.a.link->flush();  // nothing yet
  check_works(pair);
  check_works(pair);
  CHECK_EQ(pair.a.pulled, 2u);
}

TRANSPORT_TEST(what_was_written_before_the_other_end_was_opened_is_there) {
  auto [first, second] = over.connect();
  Member a, b;
  a.open(std::move(first), {7, 1});
  const Payload early = pattern(500, 1);
  a.queue(1, early);
  a.link->flush();
  b.open(std::move(second), {7, 1});
  CHECK_EQ(b.begun, 0u);  // not before the loop turns
  for (int i = 0; i < 10'000 && b.got.empty(); ++i) {
    if (!b.loop.turn(0)) over.wait(b.loop);
  }
  CHECK(b.got.size() == 1 && b.got[0].payload == early);
}

// ---- back pressure

TRANSPORT_TEST(a_reader_that_does_not_read_stops_the_source) {
  Pair pair(over);
  constexpr size_t kFrames = 2000;
  const Payload payload = pattern(64 * 1024, 7);
  for (size_t i = 0; i < kFrames; ++i) pair.a.queue(i, payload);
  pair.a.link->flush();
  pair.settle({&pair.a});  // b does nothing
  const size_t pulled = pair.a.pulled;
  CHECK(pulled < kFrames / 2);
  CHECK(pair.a.link->sending() && !pair.a.link->delivered());
  pair.a.link->flush();
  pair.settle({&pair.a});
  CHECK_EQ(pair.a.pulled, pulled);
  CHECK(pair.a.link->alive());
  CHECK(pair.until([&] { return pair.a.pulled > pulled; }));  // once b reads, it goes on
  // What is urgent overtakes what has not been pulled.
  const Payload urgent = pattern(100, 8);
  pair.a.queue(kFrames, urgent);
  std::rotate(pair.a.waiting.begin(), pair.a.waiting.end() - 1, pair.a.waiting.end());
  pair.a.link->flush();
  const auto is_urgent = [](const Member::Got& got) { return got.header.key == kFrames; };
  CHECK(pair.until([&] { return std::any_of(pair.b.got.begin(), pair.b.got.end(), is_urgent); }));
  CHECK(pair.b.got.size() < kFrames);
}

// ---- letting go

TRANSPORT_TEST(memory_that_is_let_go_of_while_it_is_sent) {
  Pair pair(over);
  BufferPool pool;
  const std::vector<Payload> all{pattern(kBigBytes, 1), pattern(5000, 2), pattern(70, 3)};
  auto memory = all;
  queue_all(pair.a, memory);
  pair.a.link->flush();
  CHECK(pair.a.link->sending());
  for (auto& block : memory) {
    pair.a.link->let_go(block.data(), block.data() + block.size(), pool);
  }
  for (size_t i = 0; i < pair.a.pulled; ++i) std::fill(memory[i].begin(), memory[i].end(), std::byte{0xEE});
  CHECK(pair.until([&] { return pair.b.got.size() == all.size(); }));
  check_got(pair.b, all);
  pair.a.link.reset();  // before the pool
}

TRANSPORT_TEST(memory_that_is_let_go_of_while_a_payload_lands) {
  Pair pair(over);
  BufferPool pool;
  const Payload big = pattern(kBigBytes, 1);
  Payload landing;
  pair.b.landing = &landing;
  pair.a.queue(1, big);
  pair.a.link->flush();
  const auto enough = kHeaderBytes + 1000;
  CHECK(pair.until([&] { return pair.b.link->traffic().received_bytes > enough; }));
  CHECK(pair.b.got.empty());
  pair.b.link->let_go(landing.data() + 1, landing.data() + 2, pool);  // other memory
  pair.b.link->let_go(landing.data(), landing.data() + landing.size(), pool);
  std::fill(landing.begin(), landing.end(), std::byte{0xEE});
  CHECK(pair.until([&] { return !pair.b.got.empty(); }));
  CHECK(!pair.b.got.empty() && !pair.b.got[0].landed);
  CHECK(std::all_of(landing.begin(), landing.end(), [](std::byte byte) { return byte == std::byte{0xEE}; }));
  pair.b.landing = nullptr;
  check_works(pair);
}

// ---- ends

TRANSPORT_TEST(the_peer_closes_between_two_frames) {
  Pair pair(over);
  const auto all = payloads(5, 1000, 1);
  queue_all(pair.a, all);
  pair.a.link->flush();
  pair.a.link->close();
  CHECK(!pair.a.link->alive());
  CHECK(pair.until([&] { return pair.b.ends > 0; }));
  check_got(pair.b, all);  // and what it had sent before has come
  CHECK(pair.b.ended == Link::End::closed);
  CHECK_EQ(pair.b.reason, "connection closed");
  pair.settle();
  CHECK_EQ(pair.a.ends, 0);  // nobody is told of his own close
  CHECK_EQ(pair.b.ends, 1);
}

TRANSPORT_TEST(the_peer_closes_inside_a_frame) {
  Pair pair(over);
  const Payload big = pattern(kBigBytes, 1);
  pair.a.queue(1, big);
  pair.a.link->flush();
  CHECK(pair.until([&] { return pair.b.begun > 0; }));
  pair.a.link->close();
  CHECK(pair.until([&] { return pair.b.ends > 0; }));
  CHECK(pair.b.ended == Link::End::closed);
  CHECK(pair.b.reason.starts_with("connection closed inside a frame"));  // one that is sealed says more
  CHECK(pair.b.got.empty());
}

TRANSPORT_TEST(an_endpoint_that_nobody_opens_ends_the_connection) {
  auto [first, second] = over.connect();
  Member b;
  b.open(std::move(second), {7, 1});
  first.reset();
  for (int i = 0; i < 10'000 && b.ends == 0; ++i) {
    if (!b.loop.turn(0)) over.wait(b.loop);
  }
  CHECK(b.ended == Link::End::closed);
}

TRANSPORT_TEST(a_link_that_is_dropped_ends_the_connection) {
  Pair pair(over);
  pair.a.link.reset();
  CHECK(pair.until([&] { return pair.b.ends > 0; }));
  CHECK(pair.b.ended == Link::End::closed);
}

TRANSPORT_TEST(bytes_that_are_no_frame_end_it) {
  const auto broken = [](auto change) {
    Header header;
    header.type = FrameType::push;
    change(header);
    return header;
  };
  const Header headers[] = {
      broken([](Header& h) { h.magic = 0x20544547; }),  // "GET "
      broken([](Header& h) { h.version = 99; }),
      broken([](Header& h) { h.type = static_cast<FrameType>(200); }),
      broken([](Header& h) { h.flags = 1 << 15; }),
  };
  for (const Header& header : headers) {
    Pair pair(over);
    pair.a.queue(header, {});
    const Payload after = pattern(10, 1);
    pair.a.queue(5, after);
    pair.a.link->flush();
    check_ended(pair, Link::End::violation);
    CHECK_EQ(pair.b.begun, 0u);
    CHECK(!pair.b.reason.empty());
  }
}

TRANSPORT_TEST(a_frame_of_another_job_or_epoch_ends_it) {
  for (const LinkOptions& other : {LinkOptions{8, 1}, LinkOptions{7, 2}}) {
    Pair pair(over, other, {7, 1});
    const Payload payload = pattern(10, 1);
    pair.a.queue(1, payload);
    pair.a.link->flush();
    check_ended(pair, Link::End::violation);
    CHECK_EQ(pair.b.begun, 0u);
  }
}

TRANSPORT_TEST(what_a_callback_throws_says_how_it_ends) {
  struct Case {
    std::function<void()> throws;
    Link::End end;
  };
  const Case cases[] = {
      {[] { throw WireError("not like this"); }, Link::End::violation},
      {[] { throw PeerGone("it has left"); }, Link::End::closed},
      {[] { throw std::bad_alloc(); }, Link::End::exhausted},
  };
  for (const Case& which : cases) {
    for (const bool at_begin : {true, false}) {
      Pair pair(over);
      (at_begin ? pair.b.on_begin : pair.b.on_frame) = which.throws;
      const auto all = payloads(3, 100, 1);
      queue_all(pair.a, all);
      pair.a.link->flush();
      check_ended(pair, which.end);
      CHECK_EQ(pair.b.begun, 1u);
      CHECK_EQ(pair.b.exception, "");  // it is the link's end, not the loop's trouble
    }
  }
}

TRANSPORT_TEST(a_source_without_memory_ends_it) {
  Pair pair(over);
  pair.b.on_next = [] { throw std::bad_alloc(); };
  pair.b.link->flush();
  check_ended(pair, Link::End::exhausted);
}

TRANSPORT_TEST(an_owner_that_gives_up_is_told_as_if_it_had_ended) {
  Pair pair(over);
  pair.b.link->give_up(Link::End::exhausted, "no room");
  CHECK_EQ(pair.b.ends, 1);
  CHECK_EQ(pair.b.reason, "no room");
  pair.b.link->give_up(Link::End::violation, "again");
  check_ended(pair, Link::End::exhausted);
  CHECK_EQ(pair.b.reason, "no room");
}

TRANSPORT_TEST(a_link_that_is_closed_does_nothing_any_more) {
  Pair pair(over, {7, 1, false, 1}, {7, 1, false, 1});
  BufferPool pool;
  Payload big = pattern(kBigBytes, 1);
  pair.b.queue(1, big);
  pair.b.link->flush();
  pair.b.link->close();
  pair.b.link->close();
  pair.b.queue(2, big);
  pair.b.link->flush();
  pair.b.link->let_go(big.data(), big.data() + big.size(), pool);
  pair.b.link->watch(true, 1);
  pair.b.link->give_up(Link::End::violation, "too late");
  pair.settle();
  CHECK_EQ(pair.b.pulled, 1u);
  CHECK_EQ(pair.b.ends, 0);
  CHECK(!pair.b.link->sending());
  CHECK_EQ(pair.a.ends, 1);
}

TRANSPORT_TEST(a_callback_may_close_the_link) {
  for (const auto where : {&Member::on_begin, &Member::on_frame}) {
    for (const bool drop : {false, true}) {
      Pair pair(over);
      pair.b.*where = [&] {
        pair.b.link->close();
        if (drop) pair.b.link.reset();
      };
      const auto all = payloads(20, 1000, 1);
      queue_all(pair.a, all);
      pair.a.link->flush();
      CHECK(pair.until([&] { return pair.a.ends > 0; }));
      CHECK_EQ(pair.b.begun, 1u);  // nothing follows
      CHECK_EQ(pair.b.got.size(), where == &Member::on_begin ? 0u : 1u);
      CHECK_EQ(pair.b.ends, 0);
    }
  }
  Pair pair(over);
  const Payload payload = pattern(100, 1);
  for (uint64_t i = 0; i < 5; ++i) pair.a.queue(i, payload);
  pair.a.on_next = [&] {
    if (pair.a.pulled == 3) pair.a.link->close();
  };
  pair.a.link->flush();
  CHECK_EQ(pair.a.pulled, 4u);
  CHECK(!pair.a.link->sending());
  CHECK(pair.until([&] { return pair.b.ends > 0; }));
  CHECK(pair.b.got.empty());  // they were never on the wire
  CHECK_EQ(pair.a.ends, 0);
}

TRANSPORT_TEST(a_watcher_may_drop_the_link) {
  Pair pair(over);
  pair.b.on_ended = [&] { pair.b.link.reset(); };
  pair.a.link->close();
  CHECK(pair.until([&] { return pair.b.ends > 0; }));
  pair.settle();
  CHECK_EQ(pair.b.ends, 1);
}

// ---- checksums

TRANSPORT_TEST(a_payload_that_changed_on_the_way_is_found_out) {
  for (const bool checksum : {true, false}) {
    Pair pair(over, {7, 1, checksum});
    Payload big = pattern(kBigBytes, 1);
    pair.a.queue(1, big);
    pair.a.link->flush();  // the header is made, the end of the payload is not on the wire yet
    big.back() ^= std::byte{4};
    if (checksum) {
      check_ended(pair, Link::End::violation);
      CHECK(pair.b.got.empty());
    } else {
      CHECK(pair.until([&] { return !pair.b.got.empty(); }));
      CHECK(!pair.b.got.empty() && pair.b.got[0].payload == big);
      CHECK_EQ(pair.b.ends, 0);
    }
  }
}

TRANSPORT_TEST(payloads_carry_a_checksum_if_that_was_asked_for) {
  for (const bool checksum : {true, false}) {
    Pair pair(over, {7, 1, checksum});
    const auto all = payloads(50, 30'000, 1);
    queue_all(pair.a, all);
    pair.a.link->flush();
    CHECK(pair.until([&] { return pair.b.got.size() == all.size(); }));
    check_got(pair.b, all);
    for (const auto& got : pair.b.got) {
      CHECK_EQ((got.header.flags & kFlagChecksum) != 0, checksum && got.header.length > 0);
    }
  }
}

// ---- what a link says of itself

TRANSPORT_TEST(a_link_counts_what_it_moves) {
  Pair pair(over);
  const auto all = payloads(100, 20'000, 1);
  queue_all(pair.a, all);
  CHECK_EQ(pair.a.link->traffic().sent_bytes, 0u);
  pair.a.link->flush();
  CHECK(pair.until([&] { return pair.b.got.size() == all.size(); }));
  CHECK_EQ(pair.a.link->traffic().sent_bytes, wire_bytes(all));
  CHECK_EQ(pair.b.link->traffic().received_bytes, wire_bytes(all));
  CHECK_EQ(pair.a.link->traffic().received_bytes, 0u);
  CHECK_EQ(pair.b.link->traffic().sent_bytes, 0u);
}

TRANSPORT_TEST(a_link_knows_what_is_under_way) {
  Pair pair(over);
  CHECK(pair.a.link->delivered() && !pair.a.link->sending() && !pair.b.link->has_unread());
  const Payload payload = pattern(100, 1);
  pair.a.queue(1, payload);
  pair.a.link->flush();
  CHECK(pair.until({&pair.a}, [&] { return pair.b.link->has_unread(); }));  // seen before it is read
  CHECK_EQ(pair.b.begun, 0u);
  CHECK(pair.until([&] { return pair.b.got.size() == 1; }));
  CHECK(!pair.b.link->has_unread());
  CHECK(pair.until([&] { return pair.a.link->delivered(); }));
}

TRANSPORT_TEST(a_link_knows_how_far_the_peer_is) {
  Pair pair(over);
  for (int i = 0; i < 5; ++i) check_works(pair);
  CHECK(pair.until([&] { return pair.a.link->delivered(); }));
  const int64_t round_trip = pair.a.link->round_trip_ns();  // 0: it does not know
  CHECK(round_trip >= 0 && round_trip < kNanosecondsPerSecond);
  CHECK_EQ(pair.a.link->same_machine(), over.same_machine());
  CHECK_EQ(pair.b.link->same_machine(), over.same_machine());
}

TRANSPORT_TEST(a_peer_that_can_be_reached_is_watched_without_harm) {
  Pair pair(over, {7, 1, false, 10 * kNanosecondsPerSecond});
  for (int64_t second = 0; second < 100; ++second) {
    pair.a.link->watch(second % 10 != 9, second * kNanosecondsPerSecond);
    CHECK(pair.a.link->alive());
  }
  check_works(pair);
  Pair unlimited(over);
  unlimited.a.link->watch(true, INT64_MAX);
  CHECK(unlimited.a.link->alive());
}
