// ExactSum against Python's math.fsum, and the invariances it is there for: bit for bit under order, cuts and ranks.
#include "ballast/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

namespace ballast {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Finite doubles with every exponent equally likely, below 2^900 so that few sums overflow.
std::vector<double> any_doubles(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values;
  while (static_cast<int64_t>(values.size()) < n) {
    const double value = std::bit_cast<double>(static_cast<uint64_t>(random()));
    if (std::isfinite(value) && std::abs(value) < 0x1p900) values.push_back(value);
  }
  return values;
}

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (double value : values) sum.add(value);
  return sum;
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

TEST(ExactSum, EqualsCorrectlyRoundedGoldenSums) {
  std::ifstream file(BALLAST_SOURCE_DIR "/tests/base/golden/exact_sum.txt");
  ASSERT_TRUE(file.good());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    const double expected = std::strtod(word.c_str(), nullptr);
    std::vector<double> terms;
    while (words >> word) terms.push_back(std::strtod(word.c_str(), nullptr));
    EXPECT_EQ(bits(sum_of(terms).value()), bits(expected + 0.0)) << "case " << cases;
  }
  EXPECT_EQ(cases, 105);
}

TEST(ExactSum, DoesNotDependOnTheOrder) {
  std::vector<double> values = any_doubles(2000, 1);
  const ExactSum first = sum_of(values);
  std::mt19937_64 random(2);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(values.begin(), values.end(), random);
    const ExactSum again = sum_of(values);
    EXPECT_EQ(bits(again.value()), bits(first.value()));
    EXPECT_EQ(again, first);
  }
}

TEST(ExactSum, DoesNotDependOnThePartition) {
  const std::vector<double> values = any_doubles(997, 3);
  const ExactSum whole = sum_of(values);
  for (int ranks : {1, 2, 3, 5, 8, 97, 1500}) {
    std::vector<ExactSum> parts(ranks);
    for (size_t i = 0; i < values.size(); ++i) parts[(i * 7919) % ranks].add(values[i]);
    ExactSum merged;
    std::array<int64_t, ExactSum::kWords> words{};
    for (const ExactSum& part : parts) {
      merged.merge(part);
      const ExactSum::Words of_rank = part.words();
      for (int i = 0; i < ExactSum::kWords; ++i) words[i] += of_rank[i];
    }
    EXPECT_EQ(merged, whole) << ranks;
    EXPECT_EQ(ExactSum::from_words(words), whole) << ranks;
    EXPECT_EQ(bits(ExactSum::from_words(words).value()), bits(whole.value())) << ranks;
  }
}

TEST(ExactSum, WordsOfAMillionRanksAdd) {
  // The words of 2^20 equal sums are those of one, times 2^20: the largest and smallest digits must survive.
  for (double value : {0x1.fffffffffffffp1000, -0x1.fffffffffffffp1000, 5e-324, -5e-324, 3.7, -1.0}) {
    ExactSum::Words words = sum_of({value}).words();
    for (int64_t& word : words) word *= int64_t{1} << 20;
    EXPECT_EQ(bits(ExactSum::from_words(words).value()), bits(value * 0x1p20));
  }
}

TEST(ExactSum, CancelsExactly) {
  std::vector<double> values = any_doubles(500, 4);
  const size_t n = values.size();
  for (size_t i = 0; i < n; ++i) values.push_back(-values[i]);
  EXPECT_EQ(bits(sum_of(values).value()), bits(0.0));
  values.push_back(5e-324);
  EXPECT_EQ(sum_of(values).value(), 5e-324);
  values.push_back(-1e-323);
  EXPECT_EQ(sum_of(values).value(), -5e-324);
}

TEST(ExactSum, RoundsTiesToEvenAndOverflowsToInfinity) {
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({1.0, 0x1p-53}).value(), 1.0);
  EXPECT_EQ(sum_of({1.0, 0x1p-52, 0x1p-53}).value(), 1.0 + 0x1p-51);
  EXPECT_EQ(sum_of({1.0, 0x1p-53, 5e-324}).value(), 1.0 + 0x1p-52);
  EXPECT_EQ(sum_of({-1.0, -0x1p-53, -5e-324}).value(), -1.0 - 0x1p-52);
  EXPECT_EQ(sum_of({most, most}).value(), kInfinity);
  EXPECT_EQ(sum_of({-most, -most}).value(), -kInfinity);
  EXPECT_EQ(sum_of({most, most, -most}).value(), most);
  EXPECT_EQ(sum_of({most, 0x1p969}).value(), most);
  EXPECT_EQ(sum_of({most, 0x1p970}).value(), kInfinity);
}

TEST(ExactSum, TracksNonFiniteTerms) {
  EXPECT_EQ(sum_of({1, kInfinity, 2}).value(), kInfinity);
  EXPECT_EQ(sum_of({1, -kInfinity, 2}).value(), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity}).value()));
  EXPECT_TRUE(std::isnan(sum_of({1, std::numeric_limits<double>::quiet_NaN()}).value()));
  ExactSum sum = sum_of({1});
  sum.merge(sum_of({kInfinity}));
  EXPECT_EQ(ExactSum::from_words(sum.words()).value(), kInfinity);
  sum.merge(sum_of({-kInfinity}));
  EXPECT_TRUE(std::isnan(ExactSum::from_words(sum.words()).value()));
}

ExactSum squares_one_by_one(const std::vector<float>& values) {
  ExactSum sum;
  for (float value : values) sum.add(static_cast<double>(value) * value);
  return sum;
}

ExactSum squares_of(const std::vector<float>& values) {
  ExactSum sum;
  sum.add_squares(values.data(), static_cast<int64_t>(values.size()));
  return sum;
}

TEST(ExactSum, SquaresAreExactAtEveryRange) {
  // `range` is the number of binades that the magnitudes spread over, up to all of float with its denormals.
  std::mt19937_64 random(5);
  for (int top : {0, -30, 100, 127, -100, -126, -149}) {
    for (int range : {1, 2, 20, 21, 22, 23, 24, 30, 60, 276}) {
      for (int64_t n : {0, 1, 7, 127, 128, 129, 256, 1000, 8192 + 5}) {
        std::vector<float> values(n);
        for (float& value : values) {
          const uint32_t mantissa = static_cast<uint32_t>(random() & 0x7fffff);
          const int exponent = top - static_cast<int>(random() % static_cast<uint64_t>(range));
          value = std::ldexp(std::bit_cast<float>(0x3f800000 | mantissa), exponent);
          if (random() % 2) value = -value;
          if (random() % 5 == 0) value = 0;
        }
        ASSERT_EQ(squares_of(values), squares_one_by_one(values))
            << "top 2^" << top << " range " << range << " n " << n;
      }
    }
  }
}

TEST(ExactSum, SquaresAreExactAtTheEdgeOfTheRange) {
  // Runs full of the largest mantissa at both ends of the range that is summed in two doubles, and one past it.
  const float all_ones = std::bit_cast<float>(0x3fffffff);
  for (int range : {21, 22, 23}) {
    for (int top : {0, 127, -126 + range}) {
      for (int large = 0; large <= 128; ++large) {
        std::vector<float> values(128, std::ldexp(all_ones, top - range));
        for (int i = 0; i < large; ++i) values[(i * 37) % 128] = std::ldexp(all_ones, top);
        ASSERT_EQ(squares_of(values), squares_one_by_one(values)) << range << " " << top << " " << large;
      }
    }
  }
}

TEST(ExactSum, SquaresDoNotDependOnCuts) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(10'017);
  for (float& value : values) value = normal(random) * std::exp2(normal(random) * 8);
  const int64_t n = static_cast<int64_t>(values.size());
  const ExactSum whole = squares_of(values);
  for (int64_t parts : {2, 3, 7, 64, 301}) {
    ExactSum merged;
    for (int64_t part = 0; part < parts; ++part) {
      ExactSum sum;
      const int64_t begin = n * part / parts;
      sum.add_squares(values.data() + begin, n * (part + 1) / parts - begin);
      merged.merge(sum);
    }
    EXPECT_EQ(merged, whole) << parts;
  }
}

TEST(ExactSum, SquaresTrackNonFiniteGradients) {
  std::vector<float> values(200, 1.0f);
  values[130] = std::numeric_limits<float>::infinity();
  ExactSum sum;
  sum.add_squares(values.data(), 200);
  EXPECT_EQ(sum.value(), kInfinity);
  values[131] = std::numeric_limits<float>::quiet_NaN();
  ExactSum with_nan;
  with_nan.add_squares(values.data(), 200);
  EXPECT_TRUE(std::isnan(with_nan.value()));
  std::vector<float> largest(100, std::numeric_limits<float>::max());
  ExactSum large;
  large.add_squares(largest.data(), 100);
  EXPECT_TRUE(std::isfinite(large.value()));
}

}  // namespace
}  // namespace ballast
