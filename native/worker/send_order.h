// What a worker sends next to one server: events in, the next piece and the reason for it out.
//
// Pure: no sockets, no clock, no memory of tensors. Its owner reports what happens, asks next() afterwards
// and does what it says. The rules, from the strongest to the weakest (ADR 6 says why and what each brought):
//
//   - What was in flight when a connection broke goes first over the next one: others wait for it.
//   - A piece that the server WANTs, because others have sent theirs, or asks to RESEND, because it has not
//     kept it, is before all others. What is wanted needs no room: the credit of others comes back with it.
//   - Pieces go by the priority of their operation, first come first served among equals.
//   - Of an operation that has no answer yet only two pieces go, then it waits and holds nobody up. Not if it
//     is compressed.
//   - A piece goes when the window of this link has room for it (window.h). To another machine it must also
//     be its turn among all links, and the budget must have room (budget.h).
//   - The first piece of something more urgent than what was sent last overtakes: it goes though there is no
//     room. One at a time: the next may when credit has come back.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ready_queue.h"
#include "worker/piece.h"
#include "worker/shared_budget.h"
#include "worker/window.h"

namespace byteps {

// The pieces of one operation that travel over one link. It must not move while it is in an order.
struct Transfer {
  std::vector<uint32_t> pieces;  // their numbers in the tensor, ascending; the others name them by position
  int32_t priority = 0;
  int64_t submitted_ns = 0;
  // All ranks send its pieces in the same order. Not if they are compressed: each rank's threads finish them
  // in an order of their own, so the first two of one rank need not be those of another, and all would wait
  // for answers; and nobody asks for one that is missing.
  bool in_step = true;

  std::optional<uint32_t> position_of(uint32_t piece) const;
  PieceState state_of(uint32_t position) const { return states_[position]; }

 private:
  friend class SendOrder;
  std::vector<PieceState> states_;  // by position
  uint32_t answered_pieces_ = 0;
  uint32_t sent_pieces_ = 0;
  uint64_t sent_bytes_ = 0;           // repetitions included
  uint64_t link_bytes_at_start_ = 0;  // what the link had sent when it was submitted
  uint32_t places_ = 0;               // entries of the order's queues that point here
};

enum class SendReason : uint8_t {
  in_order,
  overtakes,  // more urgent than what was sent last: it goes though there is no room
  wanted,     // others have sent theirs, and the server waits for ours
  again,      // the server has not kept it, or the connection broke before its answer came
};

enum class WaitReason : uint8_t {
  nothing_to_send,
  first_answer,  // all that is left are operations of which two pieces are in flight and none is answered
  credit,        // there is no room on this link
  turn,          // in the budget of all links: the order is nudged
};

// What to do now.
struct NextStep {
  enum class Do : uint8_t {
    send,     // this piece, then say sent(), refused() or failed()
    prepare,  // this piece: it is next as soon as it is compressed. Then say prepared() or failed()
    wait,     // until something happens
  };
  Do what = Do::wait;
  Transfer* transfer = nullptr;
  uint32_t position = 0;
  uint32_t bytes = 0;  // that it takes of window and budget
  SendReason reason = SendReason::in_order;
  WaitReason wait = WaitReason::nothing_to_send;
};

class SendOrder {
 public:
  class Sizes {
   public:
    // What a piece that is ready takes on the wire.
    virtual uint32_t wire_bytes(const Transfer& transfer, uint32_t position) const = 0;

   protected:
    ~Sizes() = default;
  };

  // `most_bytes`: that this link may have in flight, 0: no limit. `budget`: of all links to other machines,
  // or nullptr: the server is on this one. `turn`: see turn.h.
  SendOrder(uint64_t most_bytes, SharedBudget* budget, uint32_t turn, SharedBudget::Sender& self,
            const Sizes& sizes)
      : window_(most_bytes, true), turn_(turn), budget_(budget), self_(self), sizes_(sizes) {}

  // ---- events; after each of them next() may say something else

  enum class Readiness {
    ready,       // all pieces can be sent
    on_demand,   // each is made ready when it is next: see NextStep::Do::prepare
    one_by_one,  // each enters the order when it has become ready
  };
  // An operation begins; the first four members of the transfer are set.
  void submit(Transfer& transfer, Readiness readiness);
  // one_by_one: this piece can be sent now.
  void ready(Transfer& transfer, uint32_t position);
  // The server asks for a piece that was not sent yet; any piece may be asked for.
  void wanted(Transfer& transfer, uint32_t position);
  // The server has not kept a piece that was sent.
  void ask_again(Transfer& transfer, uint32_t position);
  // True: more may be sent because of it.
  bool answered(Transfer& transfer, uint32_t position);
  // The server is done with so many bytes of all that was sent over this connection: more than before, and
  // not more than that.
  void credit(uint64_t received_bytes, int64_t now_ns, const SharedBudget::RoundTrip& round_trip_ns);
  // The connection is gone, and with it all that was in flight. Then send_again() for each transfer, in the
  // order in which they shall go; next() when there is another connection.
  void disconnected();
  // How many pieces that are.
  uint32_t send_again(Transfer& transfer);
  // The operation ends, however it does: nothing here points at the transfer any more.
  void forget(Transfer& transfer);

  // ---- what is sent

  NextStep next(int64_t now_ns);
  // The piece is given to the wire. Once in an operation, with the last of its pieces, it returns how many
  // bytes of others have left since it was submitted.
  uint64_t sent(const NextStep& step, int64_t now_ns);
  // Words left instead of the piece: they take no room.
  void refused(const NextStep& step, int64_t now_ns);
  void prepared(const NextStep& step);
  // The operation has failed, and ends in a moment.
  void failed(const NextStep& step, int64_t now_ns);
  // Whether what was just sent should ask the server for credit.
  bool asks_for_credit();

  // Over this connection.
  uint64_t sent_bytes() const { return window_.sent_bytes() - before_bytes_; }
  // Of that, what the server is done with.
  uint64_t received_bytes() const { return window_.received_bytes() - before_bytes_; }

 private:
  // Pieces [at, end) of a transfer, still to be sent.
  struct Entry {
    Transfer* transfer;
    uint32_t at, end;
    SendReason reason = SendReason::in_order;  // never `overtakes`
  };

  int32_t place_of(const Transfer& transfer) const;
  void enqueue(int32_t priority, const Entry& entry);
  void advance();
  void drop_entry();
  bool is_due(const Entry& entry) const;
  bool must_wait_for_others(const Entry& entry) const;
  bool may_overtake(const Entry& entry) const;
  bool has_room(uint64_t bytes) const;
  enum class Turn { not_yet, taken, passed };  // passed: without room in the budget
  Turn take_turn(const Entry& entry, uint32_t bytes, bool overtakes, int64_t now_ns);
  void give_back(const NextStep& step, int64_t now_ns);

  Window window_;        // of this link alone: what its credit allows
  const uint32_t turn_;  // among links that are equally far with their pieces, of 2^32
  SharedBudget* const budget_;
  SharedBudget::Sender& self_;
  const Sizes& sizes_;
  ReadyQueue<Entry> ready_;
  // These wait for the first answer to their operation. A more urgent tensor interrupts ranks at different
  // moments. If each had sent as much as its window allows by then, they would have sent different pieces,
  // whose rounds stay open until the end of the step. So all of them send the same two pieces of a tensor,
  // and go on when an answer says that the others have come to it, too. Nobody waits for ever: the first two
  // wait for no answer, whatever else the server has asked for, so all ranks send them.
  std::vector<ReadyQueue<Entry>::Entry> unanswered_;
  // The server gives the credit of what is overtaken back when the urgent piece comes
  // (aggregator/open_bytes.h). One at a time: a backward pass makes one tensor after the other, each more
  // urgent than the last.
  int32_t last_priority_ = 0;
  bool overtook_ = false;        // and no credit has come since
  bool waiting_ = false;         // for the turn of this link in the budget
  uint64_t before_bytes_ = 0;    // what earlier connections had carried
  uint64_t asked_at_bytes_ = 0;  // what had been sent when credit was last asked for
};

}  // namespace byteps
