#include "transport/sim/network.h"

#include <algorithm>

#include "transport/sim/sim_stream.h"
#include "transport/sim/wire.h"
#include "transport/stream/stream_endpoint.h"

namespace byteps::sim {

Connection Network::connect(const WireOptions& options) {
  auto wire = std::make_shared<Wire>(*this, options);
  auto end = [&](size_t side) {
    return std::make_unique<StreamEndpoint>(std::make_shared<SimStream>(wire, side));
  };
  return {end(0), end(1), wire};
}

void Network::advance(int64_t to_ns) {
  while (next_event_ns() <= to_ns && !events_.empty()) {
    const auto event = events_.extract(events_.begin());
    now_ns_ = event.key().first;
    event.mapped()();
  }
  now_ns_ = std::max(now_ns_, to_ns);
}

void Network::at(int64_t when_ns, std::function<void()> happens) {
  events_.emplace(std::pair{std::max(when_ns, now_ns_), sequence_++}, std::move(happens));
}

}  // namespace byteps::sim
