#include "ballast/model/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ballast/base/error.h"

namespace ballast {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

std::vector<double> shares(const SamplingOptions& options) {
  std::vector<double> count(kLogits.size(), 0);
  constexpr int kDraws = 1000;
  for (int i = 0; i < kDraws; ++i)
    count[static_cast<size_t>(choose_token(kLogits, options, (i + 0.5) / kDraws))] += 1.0 / kDraws;
  return count;
}

void expect_shares(const SamplingOptions& options, const std::vector<double>& expected) {
  const std::vector<double> found = shares(options);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-3) << "token " << i;
}

TEST(Sampling, SharesFollowTheProbabilities) { expect_shares({1.0, 0, 1.0}, {0.1, 0.4, 0.2, 0.3}); }

TEST(Sampling, TemperatureSharpensAndFlattens) {
  expect_shares({0.5, 0, 1.0}, {0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
  expect_shares({1e9, 0, 1.0}, {0.25, 0.25, 0.25, 0.25});
}

TEST(Sampling, TopKKeepsTheLikeliest) { expect_shares({1.0, 2, 1.0}, {0, 4.0 / 7, 0, 3.0 / 7}); }

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_shares({1.0, 0, 0.65}, {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares({1.0, 0, 0.75}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  expect_shares({1.0, 0, 1e-9}, {0, 1, 0, 0});
}

TEST(Sampling, TopPCountsWithinTopK) { expect_shares({1.0, 3, 0.8}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9}); }

TEST(Sampling, GreedyTakesTheFirstOfEquals) {
  EXPECT_EQ(choose_token(std::vector<float>{1, 3, 3, 2}, {0.0}, 0.99), 1);
  EXPECT_EQ(choose_token(std::vector<float>{-kInfinity, -5, -kInfinity}, {0.0}, 0.0), 1);
}

TEST(Sampling, ImpossibleTokensAreNeverChosen) {
  const std::vector<float> logits = {-kInfinity, 0, -kInfinity, 0, -kInfinity};
  for (const double uniform : {0.0, 0.49, 0.51, 0.9999999999999999}) {
    const int64_t id = choose_token(logits, {}, uniform);
    EXPECT_EQ(id, uniform < 0.5 ? 1 : 3);
  }
}

TEST(Sampling, NonFiniteLogitsStop) {
  for (const auto& logits : {std::vector<float>{0, std::nanf("")}, {0, kInfinity}, {-kInfinity, -kInfinity}}) {
    try {
      choose_token(logits, {}, 0.5);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Numerical);
    }
  }
}

TEST(Sampling, RandomNumbersAreAFunctionOfSeedSequenceAndPosition) {
  EXPECT_EQ(uniform_at(1, 2, 3), uniform_at(1, 2, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(2, 2, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(1, 3, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(1, 2, 4));
  double sum = 0, least = 1, most = 0;
  for (int64_t i = 0; i < 10000; ++i) {
    const double value = uniform_at(7, 0, i);
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
  EXPECT_GE(least, 0);
  EXPECT_LT(least, 0.001);
  EXPECT_LT(most, 1);
  EXPECT_GT(most, 0.999);
}

}  // namespace
}  // namespace ballast
