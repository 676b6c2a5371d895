#include "transport/shm/lease.h"

#include "transport/shm/peer_memory.h"

namespace byteps {

Lease::Lease() : word_(random_word()) {}

}  // namespace byteps
