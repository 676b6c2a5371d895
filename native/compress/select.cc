#include "compress/select.h"

#include <cmath>
#include <functional>

#include "compress/walk.h"

namespace byteps::compress {

namespace {

constexpr size_t kSample = 4096;
constexpr size_t kRun = 16;  // of sampled elements: a cache line of them costs as much as one
constexpr size_t kFew = 64;
constexpr size_t kSpare = 64;
constexpr uint32_t kUpperShift = 15, kLower = 1u << kUpperShift;

// The value with so many larger ones, by order; the values may be moved. When few are wanted, hardly any
// value gets into a short list of the largest so far.
uint32_t of_rank(uint32_t* values, size_t count, size_t rank) {
  if (rank >= kFew) {
    std::nth_element(values, values + rank, values + count, std::greater<>());
    return values[rank];
  }
  uint32_t largest[kFew] = {};
  for (size_t i = 0; i < count; ++i) {
    if (values[i] <= largest[rank]) continue;
    size_t place = rank;
    for (; place > 0 && largest[place - 1] < values[i]; --place) largest[place] = largest[place - 1];
    largest[place] = values[i];
  }
  return largest[rank];
}

// Room for the candidates of a quarter: of the whole about four times k are expected at most, and where they
// are is not known.
size_t room_of(size_t n, size_t k) { return std::min(n / 4 + 1, 3 * k + kSample) + kSpare; }

}  // namespace

void keep_largest(Elements& elements, size_t count, size_t k, uint32_t* scratch) {
  if (count == k) return;
  for (size_t j = 0; j < count; ++j) scratch[j] = size_of(elements.value[j]);
  uint32_t* const kth = scratch + k - 1;
  std::nth_element(scratch, kth, scratch + count, std::greater<>());
  const uint32_t limit = *kth;
  // Elements equal to the limit fill what the larger ones leave, the first ones first.
  size_t equal = k - static_cast<size_t>(std::count_if(scratch, kth, [&](uint32_t s) { return s > limit; }));
  for (size_t j = 0, kept = 0; kept < k; ++j) {
    const uint32_t size = size_of(elements.value[j]);
    if (size < limit || (size == limit && equal == 0)) continue;
    if (size == limit) --equal;
    elements.index[kept] = elements.index[j];
    elements.value[kept++] = elements.value[j];
  }
}

Select::Select(size_t n, size_t k, const Kernels& kernels)
    : n_(n),
      k_(k),
      kernels_(kernels),
      found_(4 * room_of(n, k)),
      sizes_(std::max(4 * room_of(n, k), kSample)),
      counts_(n > kSample ? std::max(kLower, (kNaNSize >> kUpperShift) + 1) : 0) {}

// A magnitude that somewhat more than k elements probably reach. Half of a partition or a small one: all of
// it.
template <class At>
uint32_t Select::estimate(const At& at) {
  if (n_ <= kSample || k_ >= n_ / 2) return 0;
  const double expected = static_cast<double>(kSample) * static_cast<double>(k_) / static_cast<double>(n_);
  const auto rank = static_cast<size_t>(expected + 4 * std::sqrt(expected) + 4);
  if (rank >= kSample) return 0;
  const size_t stride = n_ / (kSample / kRun);
  size_t count = 0;
  for (size_t run = 0; run < kSample / kRun; ++run) {
    for (size_t i = run * stride; i < run * stride + kRun; ++i) sizes_[count++] = size_of(at(i));
  }
  // Zeros are not worth collecting: there are either none or far too many.
  return std::max(of_rank(sizes_.data(), kSample, rank), 1u);
}

// False when there is no room for all of them.
bool Select::collect(const float* x, size_t begin, size_t count, uint32_t least) {
  const auto first = static_cast<uint32_t>(begin);
  const Kernels::Found found =
      kernels_.above(x + begin, count, least, first, found_.index.data() + collected_,
                     found_.value.data() + collected_, found_.index.size() - collected_);
  collected_ += found.count;
  return found.seen == count;
}

// False when there are not enough candidates.
bool Select::choose() {
  if (collected_ < k_) return false;
  keep_largest(found_, collected_, k_, sizes_.data());
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
    found_.index[kept] = static_cast<uint32_t>(i);
    found_.value[kept++] = x[i];
  }
}

// Like collect, of the whole, in four quarters at once.
bool Select::collect_all(const float* x, uint32_t least) {
  const size_t quarter = n_ / 4, room = found_.index.size() / 4;
  const Kernels::FoundInFour found =
      kernels_.above_in_four(x, quarter, least, found_.index.data(), found_.value.data(), room);
  if (!found.complete) return false;
  collected_ = found.count[0];
  for (size_t s = 1; s < 4; ++s) {
    std::copy_n(found_.index.data() + s * room, found.count[s], found_.index.data() + collected_);
    std::copy_n(found_.value.data() + s * room, found.count[s], found_.value.data() + collected_);
    collected_ += found.count[s];
  }
  return collect(x, 4 * quarter, n_ - 4 * quarter, least);
}

const Elements& Select::largest(const float* x) {
  const uint32_t least = estimate([&](size_t i) { return x[i]; });
  collected_ = 0;
  if (!collect_all(x, least) || !choose()) count_and_collect(x);
  return found_;
}

const Elements& Select::largest_with_feedback(const float* g, float a, float c, float* error) {
  const uint32_t least = estimate([&](size_t i) { return a * g[i] + c * error[i]; });
  collected_ = 0;
  bool fits = true;
  walk(n_, [&](size_t begin, size_t count) {
    kernels_.feedback(g + begin, a, c, error + begin, count);
    fits = fits && collect(error, begin, count, least);
  });
  if (!fits || !choose()) count_and_collect(error);
  return found_;
}

}  // namespace byteps::compress
