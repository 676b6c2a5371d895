#include "base/failure.h"

namespace byteps {

const char* name_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::none:
      return "none";
    case FailureKind::lost:
      return "lost";
    case FailureKind::conflict:
      return "conflict";
    case FailureKind::protocol:
      return "protocol";
    case FailureKind::memory:
      return "memory";
    case FailureKind::timeout:
      return "timeout";
    case FailureKind::closed:
      return "closed";
    case FailureKind::unreachable:
      return "unreachable";
    case FailureKind::silent:
      return "silent";
  }
  return "unknown";
}

const char* name_of(Role role) {
  switch (role) {
    case Role::nobody:
      return "";
    case Role::worker:
      return "worker";
    case Role::server:
      return "server";
    case Role::scheduler:
      return "scheduler";
  }
  return "";
}

Failure copy_of(const Failure& failure) noexcept {
  try {
    return failure;
  } catch (const std::bad_alloc&) {
    return {failure.kind, {}, failure.role, failure.rank};
  }
}

std::string member_text(Role role, int rank, const std::string& host) {
  const std::string name = std::string(name_of(role)) + " " + std::to_string(rank);
  return host.empty() ? name : name + " (host " + host + ")";
}

std::string left_text(const std::string& member) { return member + " has left the job"; }

}  // namespace byteps
