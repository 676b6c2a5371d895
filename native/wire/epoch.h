// Who is in the job, and where keys can live, for as long as nobody comes or goes: a value with a number.
//
// The control plane makes it and hands it to the objects of a worker or a server, which copy it and may be
// given the next one (Client::enter, Aggregator::enter). Nothing else in the core knows how large a job is. A
// connection belongs to one epoch: the handshake has agreed on its number, and a frame of another one is
// refused. So an epoch is entered by connecting anew, never in the middle of a stream, where two ends could
// not change their minds at the same byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace byteps {

struct Epoch {
  struct Server {
    std::string name;     // as people should read it: "server 3 (host b)"
    uint16_t shards = 1;  // each of them a place for keys, with a connection of its own
    bool operator==(const Server&) const = default;
  };

  uint32_t number = 0;
  // By rank. Averages divide by how many there are.
  std::vector<std::string> ranks{};  // "worker 3 (host b)"
  std::vector<std::string> hosts{};
  // A child contributes once to every round: a machine whose ranks sum among themselves first, or a single
  // rank. Children are in the order of their seats, which is the order in which contributions are summed.
  std::vector<std::string> children{};  // "workers 2, 3 (host b)"
  std::vector<uint16_t> child_of{};     // by rank
  std::vector<Server> servers{};

  bool operator==(const Epoch&) const = default;
  uint16_t rank_count() const { return static_cast<uint16_t>(ranks.size()); }
  uint16_t child_count() const { return static_cast<uint16_t>(children.size()); }
  // The same contributors in the same order: what they have contributed before still counts.
  bool has_same_children(const Epoch& other) const {
    return child_of == other.child_of && children.size() == other.children.size();
  }
};

// What is wrong with it, or nullptr. Both halves of the core ask: it comes from another language.
const char* invalid(const Epoch& epoch);

}  // namespace byteps
