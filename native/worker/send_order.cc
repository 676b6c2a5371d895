#include "worker/send_order.h"

#include "base/tuning.h"

#include <algorithm>
#include <utility>

namespace byteps {
namespace {

// Partitions are larger than the window, so in the order of the tensor all workers would send to one server
// at a time. By the part of its own pieces that a link is through with, every server gets its share at once.
// `turn` of 2^32 puts links that are equally far in an order, which begins elsewhere on every worker.
uint64_t progress(const Transfer& transfer, uint32_t at, uint32_t turn) {
  return ((uint64_t{at} << 32) + turn) / transfer.pieces.size();
}

}  // namespace

std::optional<uint32_t> Transfer::position_of(uint32_t piece) const {
  const auto at = std::lower_bound(pieces.begin(), pieces.end(), piece);
  if (at == pieces.end() || *at != piece) return {};
  return static_cast<uint32_t>(at - pieces.begin());
}

// ---- events

void SendOrder::submit(Transfer& transfer, Readiness readiness) {
  const bool ready = readiness == Readiness::ready;
  transfer.states_.assign(transfer.pieces.size(), ready ? PieceState::ready : PieceState::unready);
  transfer.answered_pieces_ = 0;
  transfer.sent_pieces_ = 0;
  transfer.sent_bytes_ = 0;
  transfer.link_bytes_at_start_ = window_.sent_bytes();
  if (readiness == Readiness::one_by_one) return;
  enqueue(place_of(transfer), {&transfer, 0, static_cast<uint32_t>(transfer.pieces.size())});
}

void SendOrder::ready(Transfer& transfer, uint32_t position) {
  transfer.states_[position] = PieceState::ready;
  enqueue(place_of(transfer), {&transfer, position, position + 1});
}

void SendOrder::wanted(Transfer& transfer, uint32_t position) {
  if (!transfer.in_step || transfer.states_[position] != PieceState::ready) return;
  enqueue(INT32_MAX, {&transfer, position, position + 1, SendReason::wanted});
}

void SendOrder::ask_again(Transfer& transfer, uint32_t position) {
  if (transfer.states_[position] != PieceState::sent) return;
  enqueue(INT32_MAX, {&transfer, position, position + 1, SendReason::again});
  transfer.states_[position] = PieceState::again;
}

bool SendOrder::answered(Transfer& transfer, uint32_t position) {
  transfer.states_[position] = PieceState::answered;
  if (transfer.answered_pieces_++ > 0) return false;
  const size_t freed = std::erase_if(unanswered_, [&](auto& waiting) {  // what follows the first may go
    if (waiting.item.transfer != &transfer) return false;
    ready_.put_back(std::move(waiting));
    return true;
  });
  return freed > 0;
}

void SendOrder::credit(uint64_t received_bytes, int64_t now_ns,
                       const SharedBudget::RoundTrip& round_trip_ns) {
  if (budget_) budget_->received(received_bytes - this->received_bytes(), now_ns, round_trip_ns);
  window_.received(before_bytes_ + received_bytes, now_ns, round_trip_ns);
  overtook_ = false;
}

void SendOrder::disconnected() {
  const uint64_t lost_bytes = window_.under_way();
  window_.lost(lost_bytes);
  before_bytes_ = asked_at_bytes_ = window_.sent_bytes();
  overtook_ = false;
  if (!budget_) return;
  if (std::exchange(waiting_, false)) budget_->withdraw(self_);
  budget_->lost(lost_bytes);
}

// What the server asked for again before has its place in the order already; once more is nothing.
uint32_t SendOrder::send_again(Transfer& transfer) {
  transfer.sent_bytes_ = 0;
  transfer.link_bytes_at_start_ = window_.sent_bytes();
  const auto count =
      static_cast<uint32_t>(std::count(transfer.states_.begin(), transfer.states_.end(), PieceState::sent));
  if (count > 0)
    enqueue(INT32_MAX, {&transfer, 0, static_cast<uint32_t>(transfer.pieces.size()), SendReason::again});
  std::replace(transfer.states_.begin(), transfer.states_.end(), PieceState::sent, PieceState::again);
  return count;
}

void SendOrder::forget(Transfer& transfer) {
  if (std::exchange(transfer.places_, 0) == 0) return;
  ready_.remove_if([&](const Entry& entry) { return entry.transfer == &transfer; });
  std::erase_if(unanswered_, [&](const auto& waiting) { return waiting.item.transfer == &transfer; });
}

// ---- what is sent

NextStep SendOrder::next(int64_t now_ns) {
  NextStep step;
  step.wait = unanswered_.empty() ? WaitReason::nothing_to_send : WaitReason::first_answer;
  while (!ready_.empty()) {
    Entry& entry = ready_.top();
    if (!is_due(entry)) {
      advance();
      continue;
    }
    if (must_wait_for_others(entry)) {
      unanswered_.push_back(ready_.take());
      step.wait = WaitReason::first_answer;
      continue;
    }
    step.transfer = entry.transfer;
    step.position = entry.at;
    step.reason = entry.reason;
    if (entry.transfer->states_[entry.at] == PieceState::unready) {
      step.what = NextStep::Do::prepare;
      return step;
    }
    step.bytes = sizes_.wire_bytes(*entry.transfer, entry.at);
    const bool room = has_room(step.bytes), overtakes = may_overtake(entry);
    if (!room && !overtakes) {
      step.wait = WaitReason::credit;
      break;
    }
    const Turn turn = take_turn(entry, step.bytes, overtakes, now_ns);
    if (turn == Turn::not_yet) {
      step.wait = WaitReason::turn;
      return step;
    }
    const bool overtook = !room || turn == Turn::passed;
    if (entry.reason == SendReason::in_order && overtook) step.reason = SendReason::overtakes;
    step.what = NextStep::Do::send;
    return step;
  }
  if (std::exchange(waiting_, false)) budget_->withdraw(self_);
  return step;
}

uint64_t SendOrder::sent(const NextStep& step, int64_t now_ns) {
  Transfer& transfer = *step.transfer;
  PieceState& state = transfer.states_[step.position];
  window_.sent(step.bytes, now_ns);
  if (step.reason != SendReason::wanted) last_priority_ = transfer.priority;
  transfer.sent_bytes_ += step.bytes;
  const bool first_time = !was_sent(std::exchange(state, PieceState::sent));
  advance();
  if (!first_time || ++transfer.sent_pieces_ < transfer.pieces.size()) return 0;
  return window_.sent_bytes() - transfer.link_bytes_at_start_ - transfer.sent_bytes_;
}

void SendOrder::refused(const NextStep& step, int64_t now_ns) {
  give_back(step, now_ns);
  step.transfer->states_[step.position] = PieceState::sent;
  advance();
}

void SendOrder::prepared(const NextStep& step) { step.transfer->states_[step.position] = PieceState::ready; }

void SendOrder::failed(const NextStep& step, int64_t now_ns) {
  if (step.what == NextStep::Do::send) give_back(step, now_ns);
  drop_entry();
}

// To another machine with every piece: the part of the window that is this link's can become smaller at any
// time, and workers that wait for each other in a circle get out of it only by credit.
bool SendOrder::asks_for_credit() {
  if (!window_.limited()) return false;
  const bool nearly_used = budget_ || !window_.admits(tuning::kPieceBytes);
  if (!nearly_used && window_.sent_bytes() - asked_at_bytes_ < window_.bytes() / 4) return false;
  asked_at_bytes_ = window_.sent_bytes();
  return true;
}

// Without credit there is no queue worth ordering: first come, first served.
int32_t SendOrder::place_of(const Transfer& transfer) const {
  return window_.limited() ? transfer.priority : 0;
}

void SendOrder::enqueue(int32_t priority, const Entry& entry) {
  ready_.push(priority, entry);
  ++entry.transfer->places_;
}

// Over the first piece of the first entry.
void SendOrder::advance() {
  Entry& entry = ready_.top();
  if (++entry.at == entry.end) drop_entry();
}

void SendOrder::drop_entry() {
  --ready_.top().transfer->places_;
  ready_.pop();
}

// A piece can have two entries: one in its order and one because the server asked. The first that is served
// leaves nothing to the other.
bool SendOrder::is_due(const Entry& entry) const {
  const PieceState state = entry.transfer->states_[entry.at];
  return entry.reason == SendReason::again ? state == PieceState::again : !was_sent(state);
}

bool SendOrder::must_wait_for_others(const Entry& entry) const {
  return budget_ && window_.limited() && entry.reason == SendReason::in_order && entry.transfer->in_step &&
         entry.transfer->answered_pieces_ == 0 && entry.at >= tuning::kUnansweredPieces;
}

bool SendOrder::may_overtake(const Entry& entry) const {
  if (!budget_) return false;
  if (entry.reason == SendReason::wanted) return true;
  return !overtook_ && window_.under_way() > 0 && entry.transfer->priority > last_priority_;
}

bool SendOrder::has_room(uint64_t bytes) const {
  if (!window_.admits(bytes)) return false;
  const uint64_t in_flight = window_.under_way();
  return !budget_ || !window_.limited() || in_flight == 0 ||
         in_flight + bytes <= budget_->part(window_.sent_bytes(), bytes);
}

SendOrder::Turn SendOrder::take_turn(const Entry& entry, uint32_t bytes, bool overtakes, int64_t now_ns) {
  if (!budget_) return Turn::taken;
  const Transfer& transfer = *entry.transfer;
  const SharedBudget::Place place{place_of(transfer), transfer.submitted_ns,
                                  progress(transfer, entry.at, turn_), transfer.pieces[entry.at]};
  waiting_ = !budget_->admit(self_, place, bytes, now_ns);
  if (!waiting_) return Turn::taken;
  if (!overtakes) return Turn::not_yet;
  budget_->pass(self_, bytes, now_ns);
  if (entry.reason != SendReason::wanted) overtook_ = true;
  waiting_ = false;
  return Turn::passed;
}

// The turn was taken for nothing.
void SendOrder::give_back(const NextStep& step, int64_t now_ns) {
  if (budget_) budget_->received(step.bytes, now_ns, [] { return int64_t{0}; });
}

}  // namespace byteps
