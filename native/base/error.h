// The one exception type that leaves the core because of what a peer sent.
//
// Whoever catches it closes the connection and logs the reason; it never ends the process.
#pragma once

#include <stdexcept>
#include <string>

namespace byteps {

class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace byteps
