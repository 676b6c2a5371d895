// Failures: their numbers, their words, and that they need no memory.
#include "base/failure.h"

#include <set>
#include <string>

#include "base/completion.h"
#include "base/event_queue.h"
#include "local/reason.h"
#include "tests/check.h"
#include "wire/header.h"

using namespace byteps;

TEST(every_kind_has_a_name_of_its_own) {
  std::set<std::string> names{name_of(FailureKind::none), "unknown"};
  for (const FailureKind kind : kFailureKinds) CHECK(names.insert(name_of(kind)).second);
}

TEST(the_kinds_of_error_frames_are_those_of_the_protocol) {
  CHECK_EQ(kind_in(1 | 7u << kErrorRankShift), FailureKind::lost);
  CHECK_EQ(kind_in(2), FailureKind::conflict);
  CHECK_EQ(kind_in(3), FailureKind::protocol);
  CHECK_EQ(kind_in(4), FailureKind::memory);
  for (const uint32_t unknown : {0u, 5u, 6u, 255u}) CHECK_EQ(kind_in(unknown), FailureKind::protocol);
}

TEST(members_are_told_of_alike) {
  CHECK_EQ(member_text(Role::worker, 3, "b"), std::string("worker 3 (host b)"));
  CHECK_EQ(left_text(member_text(Role::server, 0, "")), std::string("server 0 has left the job"));
}

TEST(the_first_failure_counts) {
  Completion completion;
  CHECK(!completion.failure() && !completion.failing());
  completion.fail({FailureKind::lost, "first", Role::worker, 2, "b"});
  completion.fail({FailureKind::timeout, "second"});
  CHECK(completion.failing() && !completion.finished());
  CHECK_EQ(completion.failure().kind, FailureKind::lost);
  CHECK_EQ(completion.failure().message, std::string("first"));
  CHECK_EQ(completion.failure().rank, 2);
}

TEST(words_may_be_missing_but_not_the_kind) {
  const Failure failure =
      worded({FailureKind::memory, {}, Role::worker, 1}, [](Failure&) { throw std::bad_alloc(); });
  CHECK_EQ(failure.kind, FailureKind::memory);
  CHECK_EQ(failure.rank, 1);
  CHECK(failure.message.empty());
}

TEST(a_failure_crosses_the_board) {
  board::Reason reason{};
  CHECK_EQ(reason.failure().kind, FailureKind::none);
  reason.set({FailureKind::lost, "x: it died", Role::server, 4, "b"});
  const Failure read = reason.failure();
  CHECK_EQ(read.kind, FailureKind::lost);
  CHECK_EQ(read.role, Role::server);
  CHECK_EQ(read.rank, 4);
  CHECK_EQ(read.host, std::string("b"));
  CHECK_EQ(read.message, std::string("x: it died"));
}

TEST(what_does_not_fit_on_the_board_is_cut_off) {
  board::Reason reason{};
  reason.set({FailureKind::conflict, std::string(2000, 'm'), Role::worker, 1, "b"});
  CHECK_EQ(reason.failure().message, std::string(sizeof reason.text - 1, 'm'));
  reason.set({FailureKind::lost, "unheard", Role::worker, 1, std::string(2000, 'h')});
  CHECK_EQ(reason.failure().host, std::string(sizeof reason.text, 'h'));
  CHECK(reason.failure().message.empty());
}

TEST(a_failure_is_kept_when_log_lines_are_not) {
  EventQueue queue;
  for (int i = 0; i < 5000; ++i) queue.log(kInfo, "a line");
  queue.failed(FailureKind::lost, Role::server, 1, "it died");
  const auto events = queue.drain();
  CHECK_EQ(events.size(), 4096u + 2);  // and how many were dropped
  const Event& told = events[4096];
  CHECK(told.what == Event::What::failure && told.kind == FailureKind::lost && told.role == Role::server);
  CHECK_EQ(told.text, std::string("it died"));
}
