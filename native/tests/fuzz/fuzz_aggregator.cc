// Members that send anything in any order, and a real shard: it lives, and what it answers is right.
//
// An input is a script. Most of its steps are what honest members do, so rounds open, end and fail; the
// others are frames that nobody should send, or send then. The shard runs in this thread, so the same input
// does the same again. Whatever happened, no exception may leave the shard, every sum must be made of the
// contributions of all children, each once (child c contributes 4^c), and at the end an honest round of a new
// tensor must succeed.
#include <array>
#include <cmath>
#include <memory>

#include "aggregator/shard.h"
#include "tests/by_hand.h"
#include "tests/fuzz/allocations.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/tensors.h"
#include "tests/fuzz/wire_end.h"
#include "wire/offer.h"

using namespace byteps;
using namespace byteps::fuzz;

namespace {

constexpr uint64_t kJob = 7;
constexpr uint32_t kEpoch = 3;
constexpr uint32_t kPieces = 4;  // of any tensor, at most

double value_of(uint16_t child) { return std::ldexp(1.0, 2 * child); }

// What a member may offer by address: its own constants, and a lease that holds.
struct Offered {
  uint64_t lease = 11;
  std::vector<std::byte> memory;
};

class World {
 public:
  explicit World(Script& script) : script_(script), settings_(read_settings(script)) {
    shard_ = std::make_unique<Shard>(settings_, std::make_shared<const Epoch>(settings_.epoch), tensors_, 0,
                                     events_);
    members_.resize(settings_.epoch.ranks.size());
    ids_.resize(tensor_kinds().size());
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = i;
      declare(i);
    }
    rounds_.assign(settings_.epoch.children.size(), std::vector<std::array<uint32_t, kPieces>>(ids_.size()));
  }

  void run() {
    for (int steps = 0; script_.more() && steps < 200; ++steps) {
      step();
      turn();
    }
    pretend_left(UINT32_MAX);
    if (!departed_) finish_honestly();
  }

 private:
  struct Member {
    std::unique_ptr<WireEnd> end;
    bool deaf = false;
  };

  AggregatorSettings read_settings(Script& script) {
    AggregatorSettings made;
    const uint8_t how = script.byte();
    made.runtime = &hand_;
    made.job = kJob;
    made.epoch.number = kEpoch;
    made.asynchronous = how & 1;
    made.deterministic = !(how & 2);
    made.scheduled = how & 4;
    made.stall_warn_s = 1;
    made.verbose = std::getenv("FUZZ_TELL") ? 2 : 0;
    by_address_ = how & 8;
    checksum_ = how & 16;
    far_ = (how & 0xE0) == 0xE0;
    const uint8_t who = script.byte();
    const uint16_t ranks = 1 + who % 4;
    const bool pairs = who & 0x80;  // two ranks to a machine
    for (uint16_t rank = 0; rank < ranks; ++rank) {
      made.epoch.ranks.push_back("worker " + std::to_string(rank));
      made.epoch.hosts.push_back("here");
      made.epoch.child_of.push_back(pairs ? rank / 2 : rank);
      if (made.epoch.child_of.back() == made.epoch.children.size())
        made.epoch.children.push_back(made.epoch.ranks.back());
    }
    return made;
  }

  // ---- one step

  void step() {
    switch (script_.below(24)) {
      case 0:
        return all_push();
      case 1:
        return settings_.asynchronous && !script_.seldom() ? push() : refuse();
      case 2:
        return script_.rarely() ? any_frame() : all_push();
      case 3:
        if (!script_.rarely()) return all_push();
        return hold_of(script_.below(ranks())).queue_bytes(script_.bytes(script_.below(100)));
      case 4:
        return retire();
      case 5:
        if (!script_.rarely()) return all_push();
        departed_ = departed_ || !settings_.asynchronous;
        return shard_->depart(static_cast<uint16_t>(script_.below(ranks())));
      case 6:
        members_[script_.below(ranks())].end.reset();
        return;
      case 7:
        connect(static_cast<uint16_t>(script_.below(ranks())));
        return;
      case 8:
        return hand_.pass(3600 * kNanosecondsPerSecond);
      case 9: {
        Member& member = members_[script_.below(ranks())];
        member.deaf = !member.deaf;
        return;
      }
      case 10: {
        WireEnd& end = hold_of(script_.below(ranks()));
        return end.flow(script_.byte());
      }
      case 11:  // in the next turn
        allocations_left_ = script_.rarely() ? script_.byte() : script_.below(24);
        one_fails_ = !script_.rarely();
        return;
      case 12:
        return pretend_left(script_.below(2) == 0 ? UINT32_MAX : script_.byte() * 64);
      default:
        return push();
    }
  }

  void push() {
    const auto rank = static_cast<uint16_t>(script_.below(ranks()));
    const uint32_t tensor = script_.below(kinds());
    const uint8_t how = script_.byte();
    Push push = honest(rank, tensor, script_.below(kPieces));
    if (how & 1) push.header.flags |= kFlagAverage;
    if (how & 2) {  // a broadcast, mostly from a child that exists
      push.header.flags = static_cast<uint16_t>(script_.seldom() ? 3 : kFlagBroadcast);
      push.header.codec = 0;
      push.header.detail = script_.seldom() ? script_.odd_number() : script_.below(children());
    }
    if (how & 4) push.header.flags |= kFlagWantCredit;
    if (how & 8 && (by_address_ || script_.seldom())) push.header.flags |= kFlagByAddress;
    if (how & 16 && is_half(tensor_kinds()[tensor].dtype) && !settings_.asynchronous)
      push.header.dtype = static_cast<uint8_t>(DType::f32);
    if (how & 32) push.header.round += script_.rarely() ? script_.odd_number() : script_.below(4) - 2;
    if (how & 64) push.header.priority = static_cast<int8_t>(script_.byte());
    fill(push);
    if (how & 128 && script_.rarely()) spoil(push);
    send(rank, push);
    if (script_.rarely())
      hold_of(rank).flow(script_.byte());  // the rest of it comes later
    else
      hold_of(rank).flow(SIZE_MAX);
  }

  // A step of an honest job: everybody contributes what comes next.
  void all_push() {
    const uint32_t tensor = script_.below(kinds()), piece = script_.below(kPieces);
    const uint32_t first = script_.byte();
    for (uint32_t i = 0; i < ranks(); ++i) {
      const auto rank = static_cast<uint16_t>((first + i) % ranks());
      if (rank > 0 && settings_.epoch.child_of[rank] == settings_.epoch.child_of[rank - 1]) continue;
      Push push = honest(rank, tensor, piece);
      fill(push);
      send(rank, push);
      hold_of(rank).flow(SIZE_MAX);
      turn();
    }
  }

  struct Push {
    uint16_t rank;
    uint32_t tensor;
    Header header;
    std::vector<std::byte> payload;
  };

  Push honest(uint16_t rank, uint32_t tensor, uint32_t piece) {
    const TensorKind& kind = tensor_kinds()[tensor];
    piece %= kind.cut.pieces();
    Push push{rank, tensor, {}, {}};
    push.header.type = FrameType::push;
    push.header.sender = rank;
    push.header.dtype = static_cast<uint8_t>(kind.dtype);
    push.header.key = make_key(ids_[tensor], piece);
    push.header.round = rounds_[settings_.epoch.child_of[rank]][tensor][piece];
    if (kind.codec) {
      push.header.codec = static_cast<uint8_t>(kind.codec->spec.kind);
      push.header.received = CodecTerms{push.header.round, 0.1f}.word();
    }
    return push;
  }

  void fill(Push& push) {
    const TensorKind& kind = tensor_kinds()[push.tensor];
    const uint16_t child = settings_.epoch.child_of[push.rank];
    const auto dtype = static_cast<DType>(push.header.dtype);
    const size_t elements = kind.cut.length_of(piece_of(push.header.key)) / size_of(kind.dtype);
    const bool empty = (push.header.flags & kFlagBroadcast) && push.header.detail != child;
    if (empty) {
      push.payload.clear();
    } else if (push.header.codec != 0) {
      push.payload = encoded(kind, elements, static_cast<float>(value_of(child)));
    } else {
      push.payload = constant(dtype, elements, value_of(child));
    }
    if (!(push.header.flags & kFlagByAddress) || push.payload.empty()) return;
    if (push.header.codec != 0) push.header.detail = static_cast<uint32_t>(push.payload.size());
    offered_.push_back(std::make_unique<Offered>());
    Offered& own = *offered_.back();
    own.memory = std::move(push.payload);
    Offer offer{reinterpret_cast<uintptr_t>(own.memory.data()), reinterpret_cast<uintptr_t>(&own.lease),
                own.lease};
    const uint8_t which = script_.byte();
    if (which >= 240) offer.address = script_.bad_address();
    if (which >= 224 && which < 240) ++own.lease;  // withdrawn
    if (which >= 216 && which < 224) offer.lease = script_.bad_address();
    push.payload.resize(kOfferBytes);
    std::memcpy(push.payload.data(), &offer, kOfferBytes);
  }

  // One thing about it is not as it should be.
  void spoil(Push& push) {
    Header& header = push.header;
    misled_ |= (header.flags & kFlagByAddress) !=
               0;  // what lies behind the offered bytes may be taken for a contribution
    switch (script_.below(10)) {
      case 0:
        push.payload.resize(script_.below(80));
        break;
      case 1:
        header.dtype = script_.byte();
        break;
      case 2:
        header.codec = script_.byte();
        break;
      case 3:
        header.flags = static_cast<uint16_t>(script_.odd_number());
        break;
      case 4:
        header.key =
            make_key(script_.rarely() ? script_.odd_number() : ids_[push.tensor], script_.odd_number());
        break;
      case 5:
        header.sender = static_cast<uint16_t>(script_.odd_number());
        break;
      case 6:
        header.detail = script_.odd_number();
        break;
      case 7:
        header.received = uint64_t{script_.odd_number()} << 32 | script_.odd_number();
        break;
      case 8:
        header.type = static_cast<FrameType>(script_.byte());
        break;
      default:  // a payload that no codec writes; what is summed stays as it is
        if (header.codec == 0 || push.payload.empty() || (header.flags & kFlagByAddress)) break;
        push.payload[script_.below(static_cast<uint32_t>(push.payload.size()))] ^= std::byte{script_.byte()};
    }
  }

  void refuse() {
    const auto rank = static_cast<uint16_t>(script_.below(ranks()));
    Push push = honest(rank, script_.below(kinds()), script_.below(kPieces));
    push.header.type = FrameType::refuse;
    push.header.codec = 0;
    push.header.received = 0;
    push.header.round += script_.rarely() ? script_.below(4) - 2 : 0;
    push.payload = std::vector<std::byte>(script_.below(2) * script_.below(40), std::byte{'x'});
    send(rank, push);
    hold_of(rank).flow(SIZE_MAX);
  }

  void any_frame() {
    const auto rank = static_cast<uint16_t>(script_.below(ranks()));
    Header header;
    header.type = static_cast<FrameType>(script_.below(26));
    header.sender = rank;
    header.key = make_key(script_.rarely() ? script_.odd_number() : ids_[script_.below(kinds())],
                          script_.below(kPieces));
    header.flags = script_.rarely() ? script_.byte() : 0;
    header.dtype = script_.rarely() ? script_.byte() : 0;
    header.length = script_.rarely() ? script_.odd_number() : script_.below(64);
    header.job = kJob;
    header.epoch = kEpoch + (script_.rarely() ? 1 : 0);
    hold_of(rank).queue_as_is(header, script_.bytes(header.length % 64));
    hold_of(rank).flow(SIZE_MAX);
  }

  void send(uint16_t rank, const Push& push) {
    WireEnd& end = hold_of(rank);
    end.queue(push.header, push.payload, checksum_ && !push.payload.empty());
  }

  // ---- the members' connections

  WireEnd& hold_of(uint32_t rank) {
    auto& end = members_[rank].end;
    if (!end || end->ended()) connect(static_cast<uint16_t>(rank));
    return *end;
  }

  void connect(uint16_t rank) {
    members_[rank].end = std::make_unique<WireEnd>(kJob, kEpoch, far_);
    shard_->attach(kEpoch, rank, members_[rank].end->other_end(), checksum_, by_address_ ? ::getpid() : 0, 0);
    hand_.turn();
  }

  // As the scheduler does it: before any worker hears of it.
  void declare(uint32_t tensor) {
    const TensorKind& kind = tensor_kinds()[tensor];
    TensorInfo info{ids_[tensor], "t" + std::to_string(ids_[tensor]), kind.dtype, kind.cut, {}, kind.codec};
    info.runs = {{kind.cut.partitions(), {0}}};
    tensors_.declare(std::move(info));
  }

  void retire() {
    const uint32_t tensor = script_.below(kinds());
    tensors_.forget({ids_[tensor]});
    shard_->retire({ids_[tensor]});
    ids_[tensor] += static_cast<uint32_t>(tensor_kinds().size());  // numbers are not used twice
    declare(tensor);
    for (auto& child : rounds_) child[tensor] = {};
  }

  // ---- what comes back

  void turn() {
    for (int i = 0; i < 4 && turn_shard(); ++i) read();
    read();
    for (const Event& event : events_.drain()) tell(event);
  }

  bool turn_shard() {
    const Scarcity scarcity(std::exchange(allocations_left_, -1), one_fails_);
    return hand_.turn();
  }

  void read() {
    for (uint16_t rank = 0; rank < ranks(); ++rank) {
      Member& member = members_[rank];
      if (!member.end || member.deaf) continue;
      for (const auto& frame : member.end->receive()) look_at(rank, frame);
    }
  }

  void look_at(uint16_t rank, const WireEnd::Frame& frame) {
    const Header& header = frame.header;
    require(header.sender == rank, "a frame with another sender");
    const uint32_t tensor = tensor_of(header.key) % kinds(), piece = piece_of(header.key);
    const bool current = header.type != FrameType::credit && ids_[tensor] == tensor_of(header.key);
    if (!current || (header.type != FrameType::result && header.type != FrameType::error)) return;
    uint32_t& round = rounds_[settings_.epoch.child_of[rank]][tensor][piece];
    if (header.round + 1 > round) round = header.round + 1;
    if (header.type == FrameType::result && !frame.payload.empty()) check_result(tensor, frame);
  }

  void check_result(uint32_t tensor, const WireEnd::Frame& frame) {
    const TensorKind& kind = tensor_kinds()[tensor];
    if (frame.header.codec != 0 || kind.codec || misled_) return;
    // By address it is there as long as the child has not gone on, and ours go on whenever they like.
    if (frame.header.flags & kFlagByAddress) return;
    const std::vector<std::byte>& payload = frame.payload;
    const uint32_t length = kind.cut.length_of(piece_of(frame.header.key));
    require(payload.size() == length, "a result of another length");
    const double first = element(kind.dtype, payload.data());
    const std::string what = "a result of " + std::to_string(first) + " of tensor " + std::to_string(tensor) +
                             " piece " + std::to_string(piece_of(frame.header.key)) + " round " +
                             std::to_string(frame.header.round);
    for (size_t at = 0; at < payload.size(); at += size_of(kind.dtype)) {
      const double other = element(kind.dtype, payload.data() + at);
      if (other != first) found(what + " is " + std::to_string(other) + " at byte " + std::to_string(at));
    }
    if (settings_.asynchronous) return;
    double sum = 0;
    bool known = false;
    for (uint16_t child = 0; child < children(); ++child) {
      sum += value_of(child);
      known |= first == value_of(child);  // a broadcast
    }
    const double average = sum / ranks();
    known |= first == sum || std::abs(first - average) < (kind.dtype == DType::i32 ? 1 : 0.01 * average);
    if (!known) found(what + " is no sum of all children");
  }

  // ---- the end

  void finish_honestly() {
    for (uint16_t rank = 0; rank < ranks(); ++rank) {
      members_[rank].deaf = false;
      connect(rank);
    }
    turn();
    const uint32_t tensor = 1, piece = 3;
    ids_[tensor] += 1000 * kinds();
    declare(tensor);
    for (auto& child : rounds_) child[tensor] = {};
    for (uint32_t round = 0; round < 2; ++round) {
      for (uint16_t rank = ranks(); rank-- > 0;) {
        if (rank > 0 && settings_.epoch.child_of[rank] == settings_.epoch.child_of[rank - 1]) continue;
        Push push = honest(rank, tensor, piece);
        fill(push);
        for (int again = 0; again < 3 && rounds_[settings_.epoch.child_of[rank]][tensor][piece] == round;
             ++again) {
          send(rank, push);
          hold_of(rank).flow(SIZE_MAX);
          turn();
        }
      }
      for (uint16_t child = 0; child < children(); ++child)
        require(rounds_[child][tensor][piece] == round + 1, "an honest round after all that did not end");
    }
  }

  uint16_t ranks() const { return static_cast<uint16_t>(settings_.epoch.ranks.size()); }
  uint16_t children() const { return static_cast<uint16_t>(settings_.epoch.children.size()); }
  uint32_t kinds() const { return static_cast<uint32_t>(tensor_kinds().size()); }

  Script& script_;
  bool by_address_ = false, checksum_ = false, far_ = false, departed_ = false, misled_ = false;
  byteps::testing::ByHand hand_;
  const AggregatorSettings settings_;
  EventQueue events_;
  TensorTable tensors_;
  std::vector<std::unique_ptr<Offered>> offered_;
  std::unique_ptr<Shard> shard_;
  std::vector<Member> members_;
  std::vector<uint32_t> ids_;                                       // of each kind of tensor now
  std::vector<std::vector<std::array<uint32_t, kPieces>>> rounds_;  // by child, tensor and piece
  int64_t allocations_left_ = -1;
  bool one_fails_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Script script(data, size);
  World(script).run();
  return 0;
}
