// One link without a socket: its order, and the server at the other end as a test plays it.
#pragma once

#include <sstream>
#include <string>

#include "worker/budget.h"
#include "worker/send_order.h"

namespace byteps::testing {

constexpr uint32_t kPiece = 100;
inline const auto no_round_trip = [] { return int64_t{0}; };

inline std::string name_of(SendReason reason) {
  switch (reason) {
    case SendReason::in_order:
      return "";
    case SendReason::overtakes:
      return " overtakes";
    case SendReason::wanted:
      return " wanted";
    case SendReason::again:
      return " again";
  }
  return " ?";
}

inline std::string name_of(WaitReason reason) {
  switch (reason) {
    case WaitReason::nothing_to_send:
      return "nothing";
    case WaitReason::first_answer:
      return "first answer";
    case WaitReason::credit:
      return "credit";
    case WaitReason::turn:
      return "turn";
  }
  return "?";
}

// The pieces of one operation, called `name` in what a test expects.
struct Pieces : Transfer {
  Pieces(char name, uint32_t count, int32_t priority = 0, int64_t submitted_ns = 0) : name(name) {
    for (uint32_t i = 0; i < count; ++i) pieces.push_back(i);
    this->priority = priority;
    this->submitted_ns = submitted_ns;
  }
  char name;
};

class Link final : public SharedBudget::Sender, public SendOrder::Sizes {
 public:
  Link(uint64_t most_bytes, Budget* budget, uint32_t turn = 0, bool grows_budget = true)
      : order(most_bytes, budget, turn, *this, *this) {
    if (budget && grows_budget) budget->add_link(most_bytes);
  }

  // One piece, as "a0" or "b3 wanted"; or why nothing goes, as "(credit)".
  std::string send_one() {
    const NextStep step = order.next(0);
    if (step.what == NextStep::Do::wait) return "(" + name_of(step.wait) + ")";
    std::ostringstream text;
    text << static_cast<const Pieces&>(*step.transfer).name << step.position;
    if (step.what == NextStep::Do::prepare) return text.str() + " prepare";
    order.sent(step, 0);
    return text.str() + name_of(step.reason);
  }
  // All that may go now.
  std::string send() {
    std::string all;
    for (;;) {
      const std::string one = send_one();
      if (!all.empty()) all += ", ";
      all += one;
      if (one.front() == '(') return all;
    }
  }
  void credit(uint32_t pieces) { order.credit(order.received_bytes() + pieces * kPiece, 0, no_round_trip); }
  // The server answers a piece, and is done with its bytes.
  void answer(Transfer& transfer, uint32_t position) {
    credit(1);
    order.answered(transfer, position);
  }

  void nudge() override { ++nudges; }
  uint32_t wire_bytes(const Transfer&, uint32_t) const override { return kPiece; }

  SendOrder order;
  int nudges = 0;
};

}  // namespace byteps::testing
