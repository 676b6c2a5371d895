#include "local/part_sum.h"

#include "base/tuning.h"
#include "reduce/sum.h"
#include "wire/header.h"

namespace byteps {
namespace {

// Memory of a thread that stays in its cache: nothing is allocated per part.
struct Scratch {
  alignas(64) std::byte sum[tuning::kPartBytes];
  alignas(64) std::byte incoming[tuning::kPartBytes];
  alignas(64) float wide[tuning::kPartBytes / 2];
};

Scratch& scratch() {
  thread_local const auto memory = std::make_unique<Scratch>();
  return *memory;
}

}  // namespace

const std::byte* PartSum::source(uint32_t rank, const Part& part, std::byte* scratch) const {
  const auto& location = slot_.entry(rank).src;
  if (const std::byte* here = memory_.at(rank, location, part.offset)) return here;
  return read(scratch, rank, part) ? scratch : nullptr;
}

bool PartSum::read(std::byte* to, uint32_t rank, const Part& part) const {
  if (memory_.read(to, rank, slot_.entry(rank).src, part.offset, part.bytes)) return true;
  gone_ = rank;
  return false;
}

std::byte* PartSum::destination(uint32_t rank, const Part& part) const {
  return memory_.at(rank, slot_.entry(rank).dst, part.offset);
}

std::byte* PartSum::place_for_sum(const Part& part, bool own_only, std::byte* scratch) const {
  auto fits = [&](uint32_t rank) {
    const std::byte* dst = destination(rank, part);
    if (!dst) return false;
    const bool in_place = dst == memory_.at(rank, slot_.entry(rank).src, part.offset);
    // In place, a contribution must not be overwritten before its turn. Of two terms either may be first.
    return !in_place || rank == 0 || memory_.ranks() == 2;
  };
  if (fits(memory_.own())) return destination(memory_.own(), part);
  for (uint32_t rank = 0; !own_only && rank < memory_.ranks(); ++rank) {
    if (fits(rank)) return destination(rank, part);
  }
  return scratch;
}

bool PartSum::sum_into(const Part& part, std::byte* target) const {
  const uint32_t ranks = memory_.ranks();
  if (is_half(dtype_) && ranks > 2) return sum_halves_into(part, target);
  const size_t n = part.bytes / size_of(dtype_);
  // The contribution that lies in the target already, if any, is the first term.
  uint32_t first = 0;
  if (ranks == 2 && target == memory_.at(1, slot_.entry(1).src, part.offset)) first = 1;
  if (!read(target, first, part)) return false;
  uint32_t left = ranks - 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (rank == first) continue;
    const std::byte* term = source(rank, part, scratch().incoming);
    if (!term) return false;
    if (--left == 0 && divisor_ > 1) {
      add_average(dtype_, target, term, n, divisor_);  // the last addition and the division in one
    } else {
      add(dtype_, target, term, n);
    }
  }
  return true;
}

bool PartSum::gather_wide(const Part& part, float* wide) const {
  const size_t n = part.bytes / size_of(dtype_);
  for (uint32_t rank = 0; rank < memory_.ranks(); ++rank) {
    const std::byte* term = source(rank, part, scratch().incoming);
    if (!term) return false;
    if (rank == 0) {
      widen(dtype_, wide, term, n);
    } else {
      add_widened(dtype_, wide, term, n);
    }
  }
  return true;
}

bool PartSum::sum_halves_into(const Part& part, std::byte* target) const {
  const size_t n = part.bytes / size_of(dtype_);
  float* wide = scratch().wide;
  if (!gather_wide(part, wide)) return false;
  if (divisor_ > 1) {
    narrow_average(dtype_, target, wide, n, divisor_);
  } else {
    narrow(dtype_, target, wide, n);
  }
  return true;
}

bool PartSum::deliver(const Part& part, const std::byte* result) const {
  const board::Entry& terms = slot_.entry(0);
  const bool broadcast = (terms.flags & kFlagBroadcast) != 0;
  for (uint32_t rank = 0; rank < memory_.ranks(); ++rank) {
    if (broadcast && rank == terms.root) continue;  // it has the bytes already
    if (memory_.write(rank, slot_.entry(rank).dst, part.offset, result, part.bytes)) continue;
    gone_ = rank;
    return false;
  }
  return true;
}

bool PartSum::reduce(const Part& part) const {
  const board::Entry& terms = slot_.entry(0);
  if (terms.flags & kFlagBroadcast) {
    const std::byte* bytes = source(terms.root, part, scratch().incoming);
    return bytes && deliver(part, bytes);
  }
  std::byte* sum = place_for_sum(part, false, scratch().sum);
  return sum_into(part, sum) && deliver(part, sum);
}

bool PartSum::gather(const Part& part) const {
  const board::Entry& terms = slot_.entry(0);
  std::byte* own = destination(memory_.own(), part);
  if (terms.flags & kFlagBroadcast) {
    if (terms.root == board::Entry::kElsewhere) return true;
    return read(own, terms.root, part);
  }
  std::byte* sum = place_for_sum(part, true, scratch().sum);
  if (!sum_into(part, sum)) return false;
  if (sum != own) std::memcpy(own, sum, part.bytes);
  return true;
}

bool PartSum::publish(const Part& part) const { return deliver(part, destination(memory_.own(), part)); }

}  // namespace byteps
