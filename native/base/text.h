// Words of a peer, made fit for people: logs, terminals and Python's strings take them as they are.
#pragma once

#include <string>
#include <string_view>

namespace byteps {

// Valid UTF-8 without control characters; what is neither becomes '?'. At most `most` bytes, cut between
// characters.
std::string printable(std::string_view text, size_t most = 4096);

}  // namespace byteps
