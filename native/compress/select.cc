#include "compress/select.h"

#include <cmath>

#include "compress/walk.h"

namespace byteps::compress {

namespace {

constexpr size_t kSample = 8192;
constexpr size_t kRun = 16;  // of sampled elements: a cache line of them costs as much as one
constexpr size_t kSpare = 64;
constexpr uint32_t kUpperShift = 15, kLower = 1u << kUpperShift;

// Room for candidates: about twice k are expected.
size_t room_of(size_t n, size_t k) { return std::min(n, 3 * k + kSample) + kSpare; }

}  // namespace

Select::Select(size_t n, size_t k, const Kernels& kernels)
    : n_(n),
      k_(k),
      kernels_(kernels),
      found_(room_of(n, k)),
      sizes_(std::max(room_of(n, k), std::min(n, kSample + kRun))),
      counts_(n > kSample ? std::max(kLower, (kNaNSize >> kUpperShift) + 1) : 0) {}

// A magnitude that somewhat more than k elements probably reach. Half of a partition or a small one: all of
// it.
template <class At>
uint32_t Select::estimate(const At& at) {
  if (n_ <= kSample || k_ >= n_ / 2) return 0;
  const size_t stride = n_ / (kSample / kRun);
  size_t count = 0;
  for (size_t begin = 0; begin + kRun <= n_ && count + kRun <= kSample; begin += stride) {
    for (size_t i = begin; i < begin + kRun; ++i) sizes_[count++] = size_of(at(i));
  }
  const double expected = static_cast<double>(count) * static_cast<double>(k_) / static_cast<double>(n_);
  const auto rank = static_cast<size_t>(expected + 4 * std::sqrt(expected) + 4);
  if (rank >= count) return 0;
  const auto nth = sizes_.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(sizes_.begin(), nth, sizes_.begin() + static_cast<std::ptrdiff_t>(count),
                   std::greater<>());
  return std::max(*nth, 1u);  // zeros are not worth collecting: there are either none or far too many
}

// False when there is no room for all of them.
bool Select::collect(const float* x, size_t begin, size_t count, uint32_t least) {
  const auto first = static_cast<uint32_t>(begin);
  const Kernels::Found found =
      kernels_.above(x + begin, count, least, first, found_.data() + collected_, found_.size() - collected_);
  collected_ += found.count;
  return found.seen == count;
}

// False when there are not enough candidates.
bool Select::choose(const float* x) {
  if (collected_ < k_) return false;
  keep_largest(found_.data(), collected_, k_, [&](uint32_t i) { return size_of(x[i]); }, sizes_.data());
  return true;
}

// The k-th largest magnitude: first its upper bits, then among those with these its lower bits. What is left
// in collected_ is how many elements equal to it belong to the k largest.
uint32_t Select::kth_by_counting(const float* x) {
  const auto last = [&](size_t bins, size_t& wanted) {
    size_t bin = bins - 1;
    for (; counts_[bin] < wanted; --bin) wanted -= counts_[bin];
    return static_cast<uint32_t>(bin);
  };
  size_t wanted = k_;
  const size_t uppers = (kNaNSize >> kUpperShift) + 1;
  std::fill(counts_.begin(), counts_.end(), 0);
  for (size_t i = 0; i < n_; ++i) ++counts_[size_of(x[i]) >> kUpperShift];
  const uint32_t upper = last(uppers, wanted);
  std::fill(counts_.begin(), counts_.end(), 0);
  for (size_t i = 0; i < n_; ++i) {
    const uint32_t size = size_of(x[i]);
    if (size >> kUpperShift == upper) ++counts_[size & (kLower - 1)];
  }
  const uint32_t lower = last(kLower, wanted);
  collected_ = wanted;
  return upper << kUpperShift | lower;
}

void Select::count_and_collect(const float* x) {
  const uint32_t limit = kth_by_counting(x);
  size_t equal = collected_, kept = 0;
  for (size_t i = 0; i < n_ && kept < k_; ++i) {
    const uint32_t size = size_of(x[i]);
    if (size < limit || (size == limit && equal == 0)) continue;
    if (size == limit) --equal;
    found_[kept++] = static_cast<uint32_t>(i);
  }
}

const uint32_t* Select::largest(const float* x) {
  const uint32_t least = estimate([&](size_t i) { return x[i]; });
  collected_ = 0;
  if (!collect(x, 0, n_, least) || !choose(x)) count_and_collect(x);
  return found_.data();
}

const uint32_t* Select::largest_with_feedback(const float* g, float c, float* error) {
  const uint32_t least = estimate([&](size_t i) { return g[i] + c * error[i]; });
  collected_ = 0;
  bool fits = true;
  walk(n_, [&](size_t begin, size_t count) {
    kernels_.feedback(g + begin, c, error + begin, count);
    fits = fits && collect(error, begin, count, least);
  });
  if (!fits || !choose(error)) count_and_collect(error);
  return found_.data();
}

}  // namespace byteps::compress
