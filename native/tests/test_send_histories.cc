// Random histories of several links with one budget: every piece is sent, none too often, and all end.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/ordered_link.h"
#include "worker/turn.h"

using namespace byteps;
using namespace byteps::testing;
using Readiness = SendOrder::Readiness;

namespace {

// One server as a model: what has come of every operation, and what it may still say.
struct Model {
  struct Op {
    std::unique_ptr<Pieces> pieces;
    std::vector<int> sent;     // how often
    std::vector<int> allowed;  // one and as often as the server asked for it again
    std::vector<uint32_t> in_flight;
    std::vector<uint32_t> unready;
    uint32_t answered = 0;
  };
  explicit Model(uint64_t most_bytes, Budget* budget, uint32_t turn) : link(most_bytes, budget, turn) {}
  Link link;
  std::vector<std::unique_ptr<Op>> ops;  // in flight
  bool touched = false;     // the order may say something else: it is asked only then, or when nudged
  uint32_t uncredited = 0;  // pieces that were sent, and whose credit has not come back
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    const uint32_t links = 1 + below(4);
    const uint64_t most_bytes = (1 + below(6)) * kPiece;
    for (uint32_t i = 0; i < links; ++i) {
      Budget* budget = below(5) == 0 ? nullptr : &budget_;
      models_.push_back(
          std::make_unique<Model>(most_bytes, budget, turn_of(i, links, 0, below(links), links)));
    }
  }

  void run() {
    for (int step = 0; step < 400; ++step) happen();
    // From now on all that is in flight is answered: everything must come to its end.
    for (int idle = 0; open() > 0 && idle < 3;) {
      bool did = false;
      for (auto& model : models_) {
        for (auto& op : model->ops) {
          while (!op->unready.empty()) make_ready(*model, *op), did = true;
        }
        did |= send(*model);
        while (answer_one(*model)) did = true;
        did |= give_credit(*model);
      }
      idle = did ? 0 : idle + 1;
    }
    CHECK_EQ(open(), size_t{0});
  }

 private:
  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
  size_t open() const {
    size_t count = 0;
    for (const auto& model : models_) count += model->ops.size();
    return count;
  }

  void happen() {
    Model& model = *models_[below(static_cast<uint32_t>(models_.size()))];
    switch (below(12)) {
      case 0:
      case 1:
        return submit(model);
      case 2:
        if (auto* op = any(model)) model.link.order.wanted(*op->pieces, below(size(*op)));
        model.touched = true;
        return;
      case 3:
        return ask_again(model);
      case 4:
        if (auto* op = any(model); op && below(4) == 0) {  // given up
          end(model, *op);
          model.touched = true;
        }
        return;
      case 5:
      case 6:
        answer_one(model);
        return;
      case 7:
        give_credit(model);
        return;
      case 8:
        if (auto* op = any(model); op && !op->unready.empty()) make_ready(model, *op);
        return;
      default:
        send(model);
    }
  }

  void submit(Model& model) {
    if (model.ops.size() > 5) return;
    auto op = std::make_unique<Model::Op>();
    const uint32_t count = 1 + below(8);
    op->pieces = std::make_unique<Pieces>('x', count, static_cast<int32_t>(below(4)), ++now_);
    op->sent.assign(count, 0);
    op->allowed.assign(count, 1);
    const uint32_t kind = below(4);
    op->pieces->in_step = kind > 1;
    if (kind == 0) {
      for (uint32_t at = 0; at < count; ++at) op->unready.push_back(at);
      std::shuffle(op->unready.begin(), op->unready.end(), random_);
    }
    model.link.order.submit(*op->pieces, kind == 0   ? Readiness::one_by_one
                                         : kind == 1 ? Readiness::on_demand
                                                     : Readiness::ready);
    model.touched = true;
    model.ops.push_back(std::move(op));
  }

  void make_ready(Model& model, Model::Op& op) {
    model.link.order.ready(*op.pieces, op.unready.back());
    op.unready.pop_back();
    model.touched = true;
  }

  bool send(Model& model) {
    bool did = false;
    const bool nudged = std::exchange(model.link.nudges, 0) > 0;
    if (!std::exchange(model.touched, false) && !nudged) return false;
    for (;;) {
      const NextStep step = model.link.order.next(++now_);
      if (step.what == NextStep::Do::wait) return did;
      if (step.what == NextStep::Do::prepare) {
        model.link.order.prepared(step);
        continue;
      }
      Model::Op* op = nullptr;
      for (auto& each : model.ops) op = each->pieces.get() == step.transfer ? each.get() : op;
      CHECK(op != nullptr);  // else it was given up, or is done
      if (!op) return did;
      model.link.order.sent(step, now_);
      CHECK(++op->sent[step.position] <= op->allowed[step.position]);
      op->in_flight.push_back(step.position);
      ++model.uncredited;
      did = true;
    }
  }

  void ask_again(Model& model) {
    Model::Op* op = any(model);
    if (!op || op->in_flight.empty()) return;
    const uint32_t position = op->in_flight[below(static_cast<uint32_t>(op->in_flight.size()))];
    if (op->pieces->state_of(position) != PieceState::sent) return;
    ++op->allowed[position];
    model.link.order.ask_again(*op->pieces, position);
    model.touched = true;
  }

  bool answer_one(Model& model) {
    for (auto& op : model.ops) {
      if (op->in_flight.empty()) continue;
      const uint32_t position = op->in_flight.back();
      op->in_flight.pop_back();
      if (op->pieces->state_of(position) == PieceState::answered) return true;  // it had come twice
      if (model.link.order.answered(*op->pieces, position)) model.touched = true;
      if (++op->answered < size(*op)) return true;
      for (const int times : op->sent) CHECK(times >= 1);
      end(model, *op);
      return true;
    }
    return false;
  }

  bool give_credit(Model& model) {
    if (model.uncredited == 0) return false;
    const uint32_t pieces = 1 + below(model.uncredited);
    model.uncredited -= pieces;
    model.link.credit(pieces);
    model.touched = true;
    return true;
  }

  void end(Model& model, Model::Op& op) {
    model.link.order.forget(*op.pieces);
    std::erase_if(model.ops, [&](const auto& each) { return each.get() == &op; });
  }

  Model::Op* any(Model& model) {
    return model.ops.empty() ? nullptr : model.ops[below(static_cast<uint32_t>(model.ops.size()))].get();
  }
  static uint32_t size(const Model::Op& op) { return static_cast<uint32_t>(op.pieces->pieces.size()); }

  std::mt19937 random_;
  Budget budget_;
  std::vector<std::unique_ptr<Model>> models_;
  int64_t now_ = 0;
};

}  // namespace

// Operations, answers, credit, WANT, RESEND and giving up in any order on several links with one budget:
// every piece is sent once, and once more for each time that the server asked for it again. Nothing of an
// operation that is over is sent. And nobody waits for ever once answers and credit keep coming.
TEST(any_history_sends_every_piece_once_and_comes_to_its_end) {
  const char* given = std::getenv("BYTEPS_TEST_SEED");
  const uint32_t first = given ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : 1;
  for (uint32_t seed = first; seed < first + (given ? 1 : 500); ++seed) {
    const int before = check::failures();
    World(seed).run();
    if (check::failures() == before) continue;
    std::cerr << "seed " << seed << ": BYTEPS_TEST_SEED=" << seed << " repeats it\n";
    return;
  }
}
