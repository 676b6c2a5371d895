// The rings of events: what a reader gets is whole and in order, whatever the writer does meanwhile.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "observe/ring.h"
#include "tests/check.h"

using namespace byteps;

namespace {

// All fields say which event it is: one that is made of two would show.
TraceEvent numbered(uint64_t i) {
  TraceEvent event;
  event.at_ns = static_cast<int64_t>(i);
  event.key = i * 3'000'000'019;
  event.round = static_cast<uint32_t>(i * 7);
  event.bytes = static_cast<uint32_t>(i * 11);
  event.took_ns = static_cast<uint32_t>(i * 13);
  event.peer = static_cast<uint16_t>(i * 17);
  event.stage = static_cast<Stage>(i % 15);
  event.note = static_cast<uint8_t>(i * 19);
  return event;
}

bool same(const TraceEvent& a, const TraceEvent& b) {
  return a.at_ns == b.at_ns && a.key == b.key && a.round == b.round && a.bytes == b.bytes &&
         a.took_ns == b.took_ns && a.peer == b.peer && a.stage == b.stage && a.note == b.note;
}

}  // namespace

TEST(a_reader_gets_what_was_written_and_goes_on_from_there) {
  const auto ring = std::make_unique<Ring>();
  for (uint64_t i = 0; i < 5; ++i) ring->push(numbered(i));
  std::vector<TraceEvent> events;
  CHECK_EQ(ring->read(2, events), 5u);
  CHECK_EQ(events.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) CHECK(same(events[i], numbered(i + 2)));
  CHECK_EQ(ring->read(5, events), 5u);
  CHECK_EQ(events.size(), 3u);
}

TEST(a_full_ring_has_the_last_events) {
  const auto ring = std::make_unique<Ring>();
  const uint64_t written = 2 * Ring::kEvents + 17;
  for (uint64_t i = 0; i < written; ++i) ring->push(numbered(i));
  std::vector<TraceEvent> events;
  CHECK_EQ(ring->read(0, events), written);
  CHECK_EQ(events.size(), Ring::kEvents - 1);
  for (uint64_t i = 0; i < events.size(); ++i) {
    CHECK(same(events[i], numbered(written - events.size() + i)));
  }
}

// The writer goes round many times while it is read: nothing that is kept is torn, or out of its order.
TEST(what_is_read_while_it_is_written_is_whole) {
  const auto ring = std::make_unique<Ring>();
  constexpr uint64_t kWritten = 12 * Ring::kEvents;
  std::atomic<bool> writing{true};
  std::thread writer([&] {
    for (uint64_t i = 0; i < kWritten; ++i) ring->push(numbered(i));
    writing = false;
  });
  uint64_t cursor = 0, seen = 0;
  std::vector<TraceEvent> events;
  for (bool last = false; !last;) {
    last = !writing;
    events.clear();
    const uint64_t from = cursor;
    cursor = ring->read(cursor, events);
    CHECK(events.size() <= cursor - from);
    const uint64_t first = cursor - events.size();
    for (uint64_t i = 0; i < events.size(); ++i) CHECK(same(events[i], numbered(first + i)));
    seen += events.size();
  }
  writer.join();
  CHECK_EQ(cursor, kWritten);
  CHECK(seen > 0);
}

TEST(each_thread_has_a_ring_and_hands_it_on_when_it_ends) {
  const auto run = [](uint32_t tensor) {
    std::thread([tensor] { record({.stage = Stage::ready, .key = whole_key(tensor)}); }).join();
  };
  run(1001);
  const size_t rings = read_rings({}).size();
  for (uint32_t i = 0; i < 50; ++i) run(2000 + i);
  CHECK_EQ(read_rings({}).size(), rings);  // one thread at a time: one ring
  record({.stage = Stage::needed, .key = whole_key(1002)});
  const auto all = read_rings({});
  size_t found = 0;
  for (const RingEvents& ring : all) {
    for (const TraceEvent& event : ring.events) found += event.key >> 32 >= 1001 && event.key >> 32 < 2050;
  }
  CHECK_EQ(found, 52u);
  std::vector<uint64_t> cursors;
  for (const RingEvents& ring : all) cursors.push_back(ring.next);
  for (const RingEvents& ring : read_rings(cursors)) CHECK_EQ(ring.events.size(), 0u);
}
