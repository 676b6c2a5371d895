// Why something failed: one enum and one struct, from the board in shared memory to Python's exception.
//
// That something has failed never needs memory. Words do, and they are left out where there is none: the kind
// says enough to raise the right exception.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace byteps {

// The numbers from `lost` to `memory` travel in ERROR frames (wire/header.h). A new kind is added to
// kFailureKinds; a test then asks for its exception in src/byteps/worker/failures.py.
enum class FailureKind : uint8_t {
  none = 0,         // nothing has failed
  lost = 1,         // a member died, left, or its connection closed
  conflict = 2,     // ranks do not call the same operation, or declare a tensor differently
  protocol = 3,     // a peer broke a rule of the wire
  memory = 4,       // a process has no memory to go on
  timeout = 5,      // an operation waited too long
  closed = 6,       // this process has left the job
  unreachable = 7,  // nothing comes through to a member, and nobody has closed
  silent = 8,       // a member's heartbeats have ceased
};

constexpr std::array kFailureKinds{FailureKind::lost,        FailureKind::conflict, FailureKind::protocol,
                                   FailureKind::memory,      FailureKind::timeout,  FailureKind::closed,
                                   FailureKind::unreachable, FailureKind::silent};
static_assert(static_cast<size_t>(kFailureKinds.back()) == kFailureKinds.size(), "a kind is missing");

// The same word as in the enum.
const char* name_of(FailureKind kind);

enum class Role : uint8_t { nobody, worker, server, scheduler };
const char* name_of(Role role);  // of nobody: ""

struct Failure {
  FailureKind kind = FailureKind::none;
  std::string message{};
  // Whom it is about, if it is about a member.
  Role role = Role::nobody;
  int rank = -1;
  std::string host{};

  explicit operator bool() const { return kind != FailureKind::none; }
};

// Both leave out the words if there is no memory for them.
Failure copy_of(const Failure& failure) noexcept;
template <class Words>
Failure worded(Failure failure, Words&& words) noexcept {
  try {
    words(failure);
  } catch (const std::bad_alloc&) {
  }
  return failure;
}

// The words for a member, and for one that has left. All of the core tells of members with these.
std::string member_text(Role role, int rank, const std::string& host);  // "worker 3 (host b)"
std::string left_text(const std::string& member);

}  // namespace byteps
