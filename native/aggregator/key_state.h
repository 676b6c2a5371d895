// Everything a shard knows of one key: the piece of a tensor that all children contribute to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/key_round.h"
#include "aggregator/lone_rounds.h"
#include "aggregator/tensor/key_info.h"
#include "aggregator/update/rule.h"
#include "base/buffer.h"
#include "wire/header.h"

namespace byteps {

// How a child's contribution came in the open round: what answers it goes back the same way.
struct ReplyRoute {
  uint16_t rank = 0;        // through whose connection
  bool by_address = false;  // the result may be, too
  uint32_t bytes = 0;       // of contribution that came over it
  int32_t priority = 0;     // that it had
  uint32_t connection = 0;  // which of that rank's connections it was
};

// Why the open round gives nobody a result. That there is one says so, whatever its text: that may be a
// peer's.
struct RoundFailure {
  FailureKind kind;
  std::string text;
  uint32_t round;
  bool told = false;
};

struct KeyState : KeyInfo {
  KeyState(const KeyInfo& info, std::unique_ptr<UpdateRule> rule, uint16_t children, bool rank_order)
      : KeyInfo(info),
        rule(std::move(rule)),
        round(children, rank_order),
        reply_routes(children),
        held(children) {}

  // The next epoch has other children; no round is open.
  void enter(uint16_t children) {
    rule->enter();
    round.enter(children);
    reply_routes.assign(children, {});
    held = std::vector<Contribution>(children);
    lone_rounds = {};
  }

  const std::unique_ptr<UpdateRule> rule;  // what contributions become

  // Of a rule that is collective.
  KeyRound round;
  Terms terms;                           // of the open round
  std::vector<ReplyRoute> reply_routes;  // by child; says nothing of one that is missing
  std::vector<Contribution> held;        // by child: those that wait for their turn
  size_t kept_bytes = 0;                 // of the open round: contributions held, and the sum
  std::optional<uint32_t> result_round;  // that the rule's result is of
  std::optional<RoundFailure> failure;
  std::optional<RoundFailure> last_failure;  // of a round that is over, for a child that did not hear of it
  int64_t opened_ns = 0;
  bool asks = false;  // a child on another machine has contributed: the others are asked for theirs
  bool stall_told = false;

  LoneRounds lone_rounds;  // of a rule that is not

  // Beyond what a round keeps in any case.
  size_t extra_bytes(size_t kept) const {
    const size_t first = rule->first_bytes(terms);
    return kept > first ? kept - first : 0;
  }
};

}  // namespace byteps
