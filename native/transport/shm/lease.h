// The word that makes offers of memory to other processes valid, and void again; see wire/offer.h.
#pragma once

#include <atomic>

#include "wire/offer.h"

namespace byteps {

// One per thread that offers memory. The word lies in the object: once the object is gone, a late reader
// finds no memory or some other word there, for tickets begin at a random number.
class Lease {
 public:
  Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { withdraw(); }

  Offer offer(const std::byte* data) const {
    return {reinterpret_cast<uintptr_t>(data), reinterpret_cast<uintptr_t>(&word_), word_.load()};
  }
  // Before memory that was offered is given up: everything offered until now is void.
  void withdraw() { word_.fetch_add(1); }

 private:
  std::atomic<uint64_t> word_;
  static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);
};

}  // namespace byteps
