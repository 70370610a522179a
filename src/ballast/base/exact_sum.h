#pragma once
// ExactSum: a sum of doubles without rounding (a fixed-point accumulator over the whole range of double), so that its
// value depends neither on the order of the terms nor on how they were spread over threads and ranks.
// U. Kulisch, "Computer Arithmetic and Validity", 2008; rounding happens once, in value().
#include <array>
#include <cstdint>
#include <span>

namespace ballast {

class ExactSum {
 public:
  // 68 digits of 32 bits, digit i weighing 2^(32 i - 1074): the range of double and 78 bits of room above it.
  static constexpr int kDigits = 68;
  // The digits, then the counts of +inf, -inf and NaN.
  static constexpr int kWords = kDigits + 3;
  using Words = std::array<int64_t, kWords>;

  void add(double term);
  void merge(const ExactSum& other);

  // Adds the exact squares of values[0, n): as add(double(x) * x) for each, at the speed of memory. So a norm does not
  // depend on where an array is cut.
  void add_squares(const float* values, int64_t n);

  // The exact sum rounded to nearest, ties to even. Beyond the range of double: infinity. Any NaN, or infinities of
  // both signs: NaN. Zero is +0.
  double value() const;

  // For sums over ranks: adding the words of up to 2^20 sums element by element gives the words of the merged sum.
  Words words() const;
  static ExactSum from_words(std::span<const int64_t, kWords> words);

  // Two sums are equal when their exact values are.
  bool operator==(const ExactSum& other) const { return words() == other.words(); }

 private:
  void carry();  // brings every digit but the last into [0, 2^32)

  std::array<int64_t, kDigits> digits_{};
  int64_t pending_ = 0;  // additions since the last carry(); each moves a digit by less than 2^32
  int64_t positive_infinities_ = 0, negative_infinities_ = 0, nans_ = 0;
};

}  // namespace ballast
