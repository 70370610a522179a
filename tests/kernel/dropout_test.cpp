// The generator against its published vectors, and what dropout's masks depend on.
#include "ballast/kernel/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast::kernel {
namespace {

// Known answers of Random123's philox4x32-10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, 0xffffffffffffffff), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

at::Tensor mask(uint64_t seed, uint64_t sample, int64_t position, DropoutPlace place, int64_t width, double p) {
  const at::Tensor x = at::ones({1, width}), y = at::empty({1, width});
  const uint64_t key = stream_key(seed, sample);
  dropout_rows(x, y, &key, &position, place, p);
  return y;
}

TEST(Dropout, KeepsTheShareAndTheMean) {
  for (double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = mask(1, 2, 3, {DropoutPlace::Embedding, -1}, 100001, p);
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(y.eq(0).to(at::kFloat).mean().item<double>(), p, 5 * std::sqrt(p * (1 - p) / 100001));
    EXPECT_FLOAT_EQ(y.max().item<float>(), static_cast<float>(1 / (1 - p)));
  }
}

TEST(Dropout, DependsOnEveryIndexAndNothingElse) {
  const DropoutPlace place{DropoutPlace::AfterMlp, 4};
  const at::Tensor base = mask(1, 2, 3, place, 500, 0.5);
  EXPECT_TRUE(at::equal(base, mask(1, 2, 3, place, 500, 0.5)));
  EXPECT_TRUE(at::equal(base.narrow(1, 0, 99), mask(1, 2, 3, place, 99, 0.5)));
  for (const at::Tensor& other : {mask(9, 2, 3, place, 500, 0.5), mask(1, 9, 3, place, 500, 0.5), mask(1, 2, 9, place, 500, 0.5),
                                  mask(1, 2, 3, {DropoutPlace::AfterMlp, 5}, 500, 0.5),
                                  mask(1, 2, 3, {DropoutPlace::AfterAttention, 4}, 500, 0.5)}) {
    const double equal = base.eq(other).to(at::kFloat).mean().item<double>();
    EXPECT_NEAR(equal, 0.5, 0.12);  // independent coins agree half the time: 5 standard deviations of 500
  }
}

TEST(Dropout, AttentionFactorsDoNotDependOnTheWindowAskedFor) {
  std::vector<float> whole(100), part(100);
  const DropoutPlace place{DropoutPlace::Attention, 0};
  dropout_factors(7, 50, 2, 0, 100, place, 0.4, whole.data());
  for (int64_t first : {1, 2, 3, 5, 64}) {
    for (int64_t count : {1, 2, 7, 30}) {
      dropout_factors(7, 50, 2, first, count, place, 0.4, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.begin() + count, whole.begin() + first)) << first << " " << count;
    }
  }
}

}  // namespace
}  // namespace ballast::kernel
