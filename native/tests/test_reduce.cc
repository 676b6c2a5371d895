// The reduce kernels: against formulas written for one element at a time, and every kernel set against the
// generic.
#include "reduce/sum.h"

#include <limits>
#include <numeric>

#include "tests/check.h"
#include "tests/reduce_samples.h"

using namespace byteps;
using namespace byteps::samples;

namespace {

const KernelSet* const kSets[] = {&generic_kernels(), &best_kernels()};

// (a + b) / divisor by definition. Integers in __int128, where nothing overflows, then wrapped.
template <class T>
T mean(T a, T b, uint32_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return (a + b) / static_cast<T>(divisor);
  } else {
    const auto wrapped = static_cast<T>(static_cast<__int128>(a) + static_cast<__int128>(b));
    return static_cast<T>(static_cast<__int128>(wrapped) / static_cast<__int128>(divisor));
  }
}

template <class T>
void put_mean(Bytes& out, const Bytes& a, const Bytes& b, size_t i, uint32_t divisor) {
  const T value = mean(get<T>(a.data(), i), get<T>(b.data(), i), divisor);
  std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
}

void put_half_mean(DType dtype, Bytes& out, const Bytes& a, const Bytes& b, size_t i, uint32_t divisor) {
  const auto up = dtype == DType::f16 ? f16_to_f32 : bf16_to_f32;
  const auto down = dtype == DType::f16 ? f32_to_f16 : f32_to_bf16;
  const uint16_t value = down(mean(up(get<uint16_t>(a.data(), i)), up(get<uint16_t>(b.data(), i)), divisor));
  std::memcpy(out.data() + i * 2, &value, 2);
}

Bytes expected_mean(DType dtype, const Bytes& a, const Bytes& b, uint32_t divisor) {
  Bytes out(a.size());
  for (size_t i = 0; i < a.size() / size_of(dtype); ++i) {
    switch (dtype) {
      case DType::f32:
        put_mean<float>(out, a, b, i, divisor);
        break;
      case DType::f64:
        put_mean<double>(out, a, b, i, divisor);
        break;
      case DType::u8:
        put_mean<uint8_t>(out, a, b, i, divisor);
        break;
      case DType::i8:
        put_mean<int8_t>(out, a, b, i, divisor);
        break;
      case DType::i32:
        put_mean<int32_t>(out, a, b, i, divisor);
        break;
      case DType::i64:
        put_mean<int64_t>(out, a, b, i, divisor);
        break;
      case DType::f16:
      case DType::bf16:
        put_half_mean(dtype, out, a, b, i, divisor);
        break;
    }
  }
  return out;
}

// Zero of the dtype: x + -0.0 is x for every float x, so an in-place average is the mean with this.
Bytes neutral(DType dtype, size_t n) {
  Bytes out(n * size_of(dtype), 0);
  const bool is_float = dtype == DType::f32 || dtype == DType::f64 || is_half(dtype);
  for (size_t i = size_of(dtype); is_float && i <= out.size(); i += size_of(dtype)) out[i - 1] = 0x80;
  return out;
}

// Puts bytes at an odd address, with guard bytes around them that must not change.
class Misaligned {
 public:
  explicit Misaligned(const Bytes& bytes) : room_(bytes.size() + 2 * kGuard, 0xA5) {
    for (size_t i = 0; i < bytes.size(); ++i) room_[kGuard + i] = bytes[i];
  }
  uint8_t* data() { return room_.data() + kGuard; }
  bool guards_intact() const {
    bool intact = true;
    for (size_t i = 0; i < kGuard; ++i)
      intact = intact && room_[i] == 0xA5 && room_[room_.size() - 1 - i] == 0xA5;
    return intact;
  }

 private:
  static constexpr size_t kGuard = 33;
  Bytes room_;
};

std::vector<size_t> lengths() {
  std::vector<size_t> all(70);
  std::iota(all.begin(), all.end(), size_t{0});
  all.insert(all.end(), {127, 128, 129, 255, 1000, 4099});
  return all;
}

}  // namespace

TEST(numbers_sizes_and_names) {
  for (unsigned number = 0; number < 256; ++number) CHECK_EQ(valid(static_cast<uint8_t>(number)), number < 8);
  CHECK_EQ(std::string(name_of(DType::bf16)), "bfloat16");
  CHECK_EQ(size_of(DType::i64), size_t{8});
  CHECK(is_half(DType::f16) && is_half(DType::bf16) && !is_half(DType::f32) && !is_half(DType::i8));
}

TEST(sums_and_averages_match_the_formula_at_every_length_and_address) {
  for (const KernelSet* set : kSets) {
    for (DType dtype : kAll) {
      for (size_t n : lengths()) {
        const Bytes a = elements(dtype, n, 2 * n), b = elements(dtype, n, 2 * n + 1);
        const uint32_t divisor = kDivisors[n % std::size(kDivisors)];
        Misaligned sum(a), mean_of_two(a), mean_of_one(a), src(b);
        (*set)[dtype].add(sum.data(), src.data(), n);
        (*set)[dtype].add_average(mean_of_two.data(), src.data(), n, divisor);
        (*set)[dtype].average(mean_of_one.data(), n, divisor);
        CHECK_EQ(first_difference(dtype, sum.data(), expected_mean(dtype, a, b, 1).data(), n), n);
        CHECK_EQ(first_difference(dtype, mean_of_two.data(), expected_mean(dtype, a, b, divisor).data(), n),
                 n);
        CHECK_EQ(first_difference(dtype, mean_of_one.data(),
                                  expected_mean(dtype, a, neutral(dtype, n), divisor).data(), n),
                 n);
        CHECK(sum.guards_intact() && mean_of_two.guards_intact() && mean_of_one.guards_intact());
      }
    }
  }
}

TEST(every_divisor) {
  for (const KernelSet* set : kSets) {
    for (DType dtype : kAll) {
      for (uint32_t divisor : kDivisors) {
        const Bytes a = elements(dtype, 3000, divisor), b = elements(dtype, 3000, divisor + 1u);
        Bytes acc = a;
        (*set)[dtype].add_average(acc.data(), b.data(), 3000, divisor);
        CHECK_EQ(first_difference(dtype, acc.data(), expected_mean(dtype, a, b, divisor).data(), 3000),
                 size_t{3000});
      }
    }
  }
}

TEST(a_span_can_be_added_to_itself) {
  for (DType dtype : kAll) {
    const Bytes a = elements(dtype, 100, 5);
    Bytes acc = a;
    add(dtype, acc.data(), acc.data(), 100);
    CHECK_EQ(first_difference(dtype, acc.data(), expected_mean(dtype, a, a, 1).data(), 100), size_t{100});
  }
}

// Every half value with every awkward one and with a random one, on both sides of the sum.
TEST(all_half_values) {
  constexpr size_t kCount = 65536;
  for (DType dtype : kHalves) {
    Bytes all(kCount * 2);
    for (size_t i = 0; i < kCount; ++i)
      all[2 * i] = static_cast<uint8_t>(i), all[2 * i + 1] = static_cast<uint8_t>(i >> 8);
    std::vector<Bytes> partners = {elements(dtype, kCount, 7)};
    for (uint64_t hard : awkward(dtype)) {
      Bytes same(kCount * 2);
      for (size_t i = 0; i < kCount; ++i) std::memcpy(&same[2 * i], &hard, 2);
      partners.push_back(same);
    }
    for (const Bytes& partner : partners) {
      const Bytes expected = expected_mean(dtype, all, partner, 1);
      for (const KernelSet* set : kSets) {
        Bytes sum = all, swapped = partner;
        (*set)[dtype].add(sum.data(), partner.data(), kCount);
        (*set)[dtype].add(swapped.data(), all.data(), kCount);
        CHECK_EQ(first_difference(dtype, sum.data(), expected.data(), kCount), kCount);
        CHECK_EQ(first_difference(dtype, swapped.data(), expected.data(), kCount), kCount);
      }
    }
  }
}

TEST(widened_sums_match_the_formula) {
  for (const KernelSet* set : kSets) {
    for (DType dtype : kHalves) {
      const auto up = dtype == DType::f16 ? f16_to_f32 : bf16_to_f32;
      const auto down = dtype == DType::f16 ? f32_to_f16 : f32_to_bf16;
      for (size_t n : lengths()) {
        const std::vector<float> start = floats(n, n);
        Misaligned src(elements(dtype, n, n)), narrowed(Bytes(2 * n)), averaged(Bytes(2 * n));
        std::vector<float> wide(n), summed = start;
        (*set)[dtype].widen(wide.data(), src.data(), n);
        (*set)[dtype].add_widened(summed.data(), src.data(), n);
        (*set)[dtype].narrow(narrowed.data(), start.data(), n);
        (*set)[dtype].narrow_average(averaged.data(), start.data(), n, 3);
        std::vector<float> wide_expected(n), summed_expected(n);
        std::vector<uint16_t> narrowed_expected(n), averaged_expected(n);
        for (size_t i = 0; i < n; ++i) {
          wide_expected[i] = up(get<uint16_t>(src.data(), i));
          summed_expected[i] = start[i] + wide_expected[i];
          narrowed_expected[i] = down(start[i]);
          averaged_expected[i] = down(start[i] / 3.0f);
        }
        CHECK_EQ(first_difference(DType::f32, wide.data(), wide_expected.data(), n), n);
        CHECK_EQ(first_difference(DType::f32, summed.data(), summed_expected.data(), n), n);
        CHECK_EQ(first_difference(dtype, narrowed.data(), narrowed_expected.data(), n), n);
        CHECK_EQ(first_difference(dtype, averaged.data(), averaged_expected.data(), n), n);
        CHECK(narrowed.guards_intact() && averaged.guards_intact());
      }
    }
  }
}

TEST(narrow_and_widen_of_the_best_set_equal_the_generic_on_many_floats) {
  constexpr size_t kCount = 1 << 16;
  for (DType dtype : kHalves) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<float> values = floats(kCount, seed);
      Bytes generic(kCount * 2), best(kCount * 2);
      generic_kernels()[dtype].narrow(generic.data(), values.data(), kCount);
      best_kernels()[dtype].narrow(best.data(), values.data(), kCount);
      CHECK_EQ(first_difference(dtype, generic.data(), best.data(), kCount), kCount);
    }
  }
}

// 2048 + 1 is not a float16: rounding after every term would lose both ones.
TEST(three_halves_are_rounded_once) {
  const uint16_t big = f32_to_f16(2048.0f), one = f32_to_f16(1.0f);
  float acc = 0;
  uint16_t sum = 0;
  widen(DType::f16, &acc, &big, 1);
  add_widened(DType::f16, &acc, &one, 1);
  add_widened(DType::f16, &acc, &one, 1);
  narrow(DType::f16, &sum, &acc, 1);
  CHECK_EQ(f16_to_f32(sum), 2050.0f);
}

TEST(integers_wrap_and_averages_truncate_toward_zero) {
  int8_t a[] = {127, -128, -7, 7, -1}, b[] = {1, -1, 0, 0, 0};
  add_average(DType::i8, a, b, 5, 2);
  const int8_t expected[] = {-64, 63, -3, 3, 0};
  for (size_t i = 0; i < 5; ++i) CHECK_EQ(a[i], expected[i]);
  int64_t c = std::numeric_limits<int64_t>::max();
  const int64_t one = 1;
  add(DType::i64, &c, &one, 1);
  CHECK_EQ(c, std::numeric_limits<int64_t>::min());
  average(DType::i64, &c, 1, 1);
  CHECK_EQ(c, std::numeric_limits<int64_t>::min());
}

TEST(averages_are_divisions) {
  float value = 5.0f;
  average(DType::f32, &value, 1, 49);
  CHECK_EQ(value, 5.0f / 49.0f);
  CHECK(value != 5.0f * (1.0f / 49.0f));  // or this test would not see the difference
}
