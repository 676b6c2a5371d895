// Servers that send anything in any order, and a real client: it lives, and no operation succeeds that should
// not.
//
// An input is a script, see fuzz_aggregator.cc. The client runs in this thread. Whatever its servers send:
// memory of an operation is not touched once it is done (it is freed at once, and AddressSanitizer looks), an
// operation succeeds only when every piece of it was pushed and has landed, and all are done when the client
// is closed.
#include <array>
#include <map>
#include <memory>
#include <set>

#include "base/tuning.h"
#include "tests/by_hand.h"
#include "tests/epochs.h"
#include "tests/fuzz/allocations.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/tensors.h"
#include "tests/fuzz/wire_end.h"
#include "wire/offer.h"
#include "worker/client.h"

using namespace byteps;
using namespace byteps::fuzz;

namespace {

constexpr uint64_t kJob = 7;
constexpr uint32_t kEpoch = 3;
constexpr uint32_t kPieceBytes = tuning::kByAddressBytes;  // of tensors without a codec

Cut cut_of(const TensorKind& kind) {
  Cut cut = kind.cut;
  cut.cut_bytes = kPieceBytes;
  return cut;
}

double value_of(uint32_t round) { return round % 5 + 2; }  // of every result; contributions are 1

class World {
 public:
  explicit World(Script& script) : script_(script) {
    const uint8_t how = script.byte();
    by_address_ = how & 1;
    checksum_ = how & 2;
    const bool same_machine = how & 4;
    ClientSettings settings;
    settings.job = kJob;
    settings.rank = 0;
    settings.io_threads = 1;
    settings.runtime = &hand_;
    settings.verbose = std::getenv("FUZZ_TELL") ? 2 : 0;
    settings.codec_threads = how & 8 ? 2 : 0;
    settings.credit_bytes = how & 16 ? 0 : how & 32 ? 8192 : 1 << 20;
    settings.piece_bytes = kPieceBytes;
    servers_ = how & 64 ? 2 : 1;
    shards_ = how & 128 ? 2 : 1;
    settings.epoch = byteps::testing::epoch_of(kEpoch, 2, {}, uint16_t(servers_), uint16_t(shards_));
    client_ = std::make_unique<Client>(settings);
    for (uint16_t i = 0; i < servers_ * shards_; ++i) {
      links_.push_back({std::make_unique<WireEnd>(kJob, kEpoch, false)});
      client_->connect(i / shards_, i % shards_, links_.back().end->other_end(), checksum_, same_machine,
                       by_address_ ? ::getpid() : 0);
    }
    client_->start();
    tensors_.resize(tensor_kinds().size());
    for (uint32_t i = 0; i < tensors_.size(); ++i) tensors_[i].id = i;
  }

  void run() {
    for (int steps = 0; script_.more() && steps < 200; ++steps) {
      step();
      if (!script_.rarely()) turn();
    }
    pretend_left(UINT32_MAX);
    client_->close();
    for (auto& running : running_) require(running.op->done(), "an operation is not done after close()");
  }

 private:
  struct Pushed {
    Header header;
    uint64_t bytes;  // that it took of the window
  };
  struct ServerEnd {
    std::unique_ptr<WireEnd> end;
    std::vector<Pushed> pushed{};  // and not answered yet
    uint64_t received = 0;
  };
  struct Known {
    uint32_t id = 0;
    std::shared_ptr<Tensor> native{};
    uint32_t operations = 0;  // in flight
    uint32_t rounds = 0;      // begun so far
  };
  struct Running {
    uint32_t tensor;
    std::shared_ptr<Operation> op;
    std::unique_ptr<std::vector<std::byte>> src, dst;
  };
  struct Offered {
    uint64_t lease = 11;
    std::vector<std::byte> memory;
  };

  // ---- one step

  void step() {
    switch (script_.below(32)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return submit();
      case 5:
        return queue(any_link(), say(FrameType::error), script_.bytes(script_.below(40)));
      case 6:
        return queue(any_link(), say(FrameType::stall), script_.bytes(script_.below(40)));
      case 7:
        return queue(any_link(), say(FrameType::resend), {});
      case 8:
      case 9:
        return queue(any_link(), say(FrameType::want), {});
      case 10: {
        ServerEnd& link = any_link();
        if (script_.seldom()) link.received = script_.odd_number();
        return queue(link, say(FrameType::credit), {});
      }
      case 11: {
        if (!script_.rarely()) return answer_pushed();
        ServerEnd& link = any_link();
        link.end->queue_bytes(script_.bytes(script_.below(100)));
        return link.end->flow(SIZE_MAX);
      }
      case 12:
        return any_link().end->flow(script_.byte());
      case 13:
        if (!script_.rarely()) return submit();
        return client_->fail_tensor(tensors_[script_.below(kinds())].id, "given up");
      case 14:
        return forget();
      case 15:
        for (uint32_t jobs = script_.below(4); jobs > 0; --jobs) hand_.do_job();
        return;
      case 16:
        return hand_.pass((script_.rarely() ? 3600 : 20) * kNanosecondsPerSecond);
      case 17:
        if (script_.rarely()) any_link().end->hang_up();
        return;
      case 18:
        if (script_.rarely()) client_->fail({FailureKind::lost, "somebody died", Role::worker, 1, "b"});
        return;
      case 19:
        return script_.rarely() ? any_frame() : answer_pushed();
      case 20:
        return answer(say(FrameType::result));  // whether it was pushed or not
      case 23:
        while (hand_.do_job()) {
        }
        return;
      case 24:  // in the next turn
        allocations_left_ = script_.rarely() ? script_.byte() : script_.below(24);
        one_fails_ = !script_.rarely();
        return;
      case 25:
        return pretend_left(script_.below(2) == 0 ? UINT32_MAX : script_.byte() * 64);
      default:
        return answer_pushed();
    }
  }

  void submit() {
    const uint32_t which = script_.below(kinds());
    const uint8_t how = script_.byte();
    const TensorKind& kind = tensor_kinds()[which];
    Known& known = tensors_[which];
    try {
      if (!known.native) declare(known, which);
    } catch (const OutOfMemory&) {  // the caller gets it: nothing was declared
      return;
    }
    const size_t bytes = cut_of(kind).tensor_bytes;
    Running made{which, {}, {}, {}};
    made.dst = std::make_unique<std::vector<std::byte>>(constant(kind.dtype, bytes / size_of(kind.dtype), 1));
    if (how & 1) made.src = std::make_unique<std::vector<std::byte>>(*made.dst);
    std::byte* dst = made.dst->data();
    const auto priority = static_cast<int32_t>(how >> 4);
    if (how & 2) {
      made.op = client_->broadcast(known.native, dst, how & 4 ? 1 : 0, priority);
    } else {
      made.op =
          client_->push_pull(known.native, made.src ? made.src->data() : dst, dst, priority, how & 4, 0.1f);
    }
    ++known.operations;
    running_.push_back(std::move(made));
  }

  void declare(Known& known, uint32_t which) {
    const TensorKind& kind = tensor_kinds()[which];
    std::vector<std::pair<uint16_t, uint16_t>> places;
    for (uint32_t p = 0; p < cut_of(kind).partitions(); ++p)
      places.emplace_back((which + p) % servers_, (which + p) % shards_);
    known.native = client_->declare(known.id, "t" + std::to_string(known.id), kind.dtype, cut_of(kind),
                                    places, false, kind.codec);
  }

  // As Python does it: when the operations are done, a name may be declared anew under another number.
  void forget() {
    Known& known = tensors_[script_.below(kinds())];
    if (!known.native || known.operations > 0) return;
    client_->forget(known.id);
    known = {known.id + static_cast<uint32_t>(kinds())};
  }

  ServerEnd& any_link() { return links_[script_.below(static_cast<uint32_t>(links_.size()))]; }

  // A frame about a piece of an operation in flight, mostly.
  Header say(FrameType type) {
    const uint32_t which = script_.below(kinds());
    Header header;
    header.type = type;
    header.dtype = static_cast<uint8_t>(tensor_kinds()[which].dtype);
    header.key = make_key(tensors_[which].id, script_.below(cut_of(tensor_kinds()[which]).pieces()));
    header.round = current_round(which) + (script_.rarely() ? script_.below(4) - 2 : 0);
    header.detail = type == FrameType::error ? script_.odd_number() : 0;
    return header;
  }

  uint32_t current_round(uint32_t which) const {
    for (const Running& running : running_) {
      if (running.tensor == which) return running.op->round;
    }
    return 0;
  }

  void queue(ServerEnd& link, Header header, const std::vector<std::byte>& payload) {
    header.received = link.received;
    if (script_.seldom()) spoil(header);
    link.end->queue(header, payload, checksum_ && !payload.empty());
    link.end->flow(script_.rarely() ? script_.byte() : SIZE_MAX);
  }

  void spoil(Header& header) {
    switch (script_.below(8)) {
      case 0:
        header.dtype = script_.byte();
        break;
      case 1:
        header.codec = script_.byte();
        break;
      case 2:
        header.flags = static_cast<uint16_t>(script_.odd_number());
        break;
      case 3:
        misled_ = true;  // it may now be the result of something else
        header.key = make_key(script_.odd_number(), script_.odd_number());
        break;
      case 4:
        header.detail = script_.odd_number();
        break;
      case 5:
        header.received = script_.odd_number();
        break;
      case 6:
        header.round += 5 * (script_.odd_number() - 1);  // another round with the same value
        break;
      default:
        header.type = static_cast<FrameType>(script_.byte());
    }
  }

  void any_frame() {
    Header header = say(static_cast<FrameType>(script_.below(26)));
    header.job = kJob;
    header.epoch = kEpoch + (script_.rarely() ? 1 : 0);
    header.length = script_.rarely() ? script_.odd_number() : script_.below(64);
    ServerEnd& link = any_link();
    link.end->queue_as_is(header, script_.bytes(header.length % 64));
    link.end->flow(SIZE_MAX);
  }

  // A RESULT as it should be, to a link that may have nothing to do with it.
  void answer(Header header) { send_result(any_link(), header, script_.byte()); }

  void answer_pushed() {
    ServerEnd& link = any_link();
    if (link.pushed.empty()) return;
    const uint32_t at = script_.below(static_cast<uint32_t>(link.pushed.size()));
    const Pushed pushed = link.pushed[at];
    link.pushed.erase(link.pushed.begin() + at);
    link.received += pushed.bytes;
    Header header = pushed.header;
    header.type = FrameType::result;
    send_result(link, header, script_.byte());
  }

  void send_result(ServerEnd& link, Header header, uint8_t how) {
    const TensorKind& kind = tensor_kinds()[tensor_of(header.key) % kinds()];
    const size_t elements =
        cut_of(kind).length_of(piece_of(header.key) % cut_of(kind).pieces()) / size_of(kind.dtype);
    const bool broadcast = header.flags & kFlagBroadcast;
    const bool root = broadcast && header.detail == 0;
    const bool compressed =
        kind.codec && !broadcast && !(how & 1);  // plain elements are what asynchronous servers send
    header.flags = 0;
    header.detail = 0;
    header.codec = compressed ? static_cast<uint8_t>(kind.codec->spec.kind) : 0;
    header.dtype = static_cast<uint8_t>(kind.dtype);
    header.priority = 0;
    header.payload_crc = 0;
    const auto value = static_cast<float>(value_of(header.round));
    std::vector<std::byte> payload;
    if (compressed) {
      payload = encoded(kind, elements, value);
    } else if (!root && how < 250) {
      payload = constant(kind.dtype, elements, value);
    }
    if (compressed && how >= 240) payload[how % payload.size()] ^= std::byte{how};
    if (!compressed && how >= 244 && how < 250) payload.resize(payload.size() / 2);
    if (by_address_ && (how & 2) && !payload.empty()) {
      if (compressed) header.detail = static_cast<uint32_t>(payload.size());
      offered_.push_back(std::make_unique<Offered>());
      Offered& own = *offered_.back();
      own.memory = std::move(payload);
      Offer offer{reinterpret_cast<uintptr_t>(own.memory.data()), reinterpret_cast<uintptr_t>(&own.lease),
                  own.lease};
      if ((how & 0x70) == 0x70) offer.address = script_.bad_address();
      if ((how & 0x74) == 0x64) ++own.lease;
      payload.resize(kOfferBytes);
      std::memcpy(payload.data(), &offer, kOfferBytes);
      header.flags = kFlagByAddress;
    }
    queue(link, header, payload);
  }

  // ---- what comes back

  void turn() {
    for (int i = 0; i < 4; ++i) {
      const bool did = turn_client();
      read();
      collect();
      if (!did) break;
    }
    for (const Event& event : client_->events().drain()) {
      tell(event);
      // As Python does it: a lost server ends the job.
      if (event.kind != FailureKind::none)
        client_->fail({FailureKind::lost, event.text, Role::server, 0, "a"});
    }
  }

  bool turn_client() {
    const Scarcity scarcity(std::exchange(allocations_left_, -1), one_fails_);
    return hand_.turn();
  }

  void read() {
    for (ServerEnd& link : links_) {
      for (const auto& frame : link.end->receive()) {
        const Header& header = frame.header;
        require(header.type == FrameType::push || header.type == FrameType::refuse,
                "a client sends what a server sends");
        pushed_.insert({header.key, header.round});
        if (header.type == FrameType::refuse) continue;
        const TensorKind& kind = tensor_kinds()[tensor_of(header.key) % kinds()];
        const bool offered = (header.flags & kFlagByAddress) && !frame.payload.empty();
        const uint64_t bytes = header.codec != 0 && offered ? header.detail
                               : offered                    ? cut_of(kind).length_of(piece_of(header.key))
                                                            : header.length;
        link.pushed.push_back({header, bytes});
      }
    }
  }

  // Memory goes the moment that its operation is done.
  void collect() {
    for (size_t i = 0; i < running_.size();) {
      Running& running = running_[i];
      if (!running.op->done()) {
        ++i;
        continue;
      }
      if (!running.op->failure()) check_success(running);
      --tensors_[running.tensor].operations;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void check_success(const Running& running) {
    const TensorKind& kind = tensor_kinds()[running.tensor];
    const Operation& op = *running.op;
    for (uint32_t piece = 0; piece < cut_of(kind).pieces(); ++piece) {
      require(pushed_.contains({make_key(op.tensor->id, piece), op.round}),
              "success, and not all was pushed");
    }
    if (kind.codec || misled_ || ((op.flags & kFlagBroadcast) && op.root == 0)) return;
    for (size_t at = 0; at < running.dst->size(); at += size_of(kind.dtype)) {
      if (element(kind.dtype, running.dst->data() + at) == value_of(op.round)) continue;
      found("success of tensor " + std::to_string(running.tensor) + " round " + std::to_string(op.round) +
            ", and not all has landed");
    }
  }

  uint32_t kinds() const { return static_cast<uint32_t>(tensor_kinds().size()); }

  Script& script_;
  byteps::testing::ByHand hand_;
  bool by_address_, checksum_, misled_ = false;
  uint16_t servers_, shards_;
  std::vector<std::unique_ptr<Offered>> offered_;
  std::vector<Running> running_;  // outlives the client
  std::vector<ServerEnd> links_;
  std::unique_ptr<Client> client_;
  std::vector<Known> tensors_;
  std::set<std::pair<uint64_t, uint32_t>> pushed_;  // key and round
  int64_t allocations_left_ = -1;
  bool one_fails_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Script script(data, size);
  World(script).run();
  return 0;
}
