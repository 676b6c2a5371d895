// The exceptions that leave the core because of what a peer sent, or because it is gone.
//
// Whoever catches one closes the connection and logs the reason; it never ends the process.
#pragma once

#include <stdexcept>
#include <string>

namespace byteps {

class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Found out while working on a frame: the peer's process has ended or is about to. Nobody broke a rule.
class PeerGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace byteps
