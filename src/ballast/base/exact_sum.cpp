// The fixed-point accumulator and its rounding.
#include "ballast/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ballast/base/check.h"
#include "ballast/base/clones.h"

namespace ballast {
namespace {

constexpr int64_t kDigitMask = 0xffffffffLL;
constexpr int64_t kMostPending = int64_t{1} << 30;  // 2^30 additions of 2^32 stay below 2^62

// Squares of a run of 2^7 floats, summed without rounding in two doubles. With 2^M <= max |x| < 2^(M+1):
//   p = x * x < 2^(2M+2) is exact in double, a multiple of the square of x's last bit;
//   high = p rounded to a multiple of u = 2^(2M-44): 2^7 of them stay below 2^53 u;
//   low = p - high, at most u / 2: 2^7 of them stay below 2^53 last bits of p if every |x| >= 2^(M-22).
// Zeros do no harm. A run of wider range, with denormal or with non-finite values is added square by square.
constexpr int64_t kRun = 128;
constexpr int kWidestRange = 22;
struct RunSum {
  double high, low;
  bool exact;
};

BALLAST_CLONES void sum_runs(const float* values, int64_t runs, RunSum* sums) {
  typedef float Float4 __attribute__((vector_size(16)));
  typedef double Double4 __attribute__((vector_size(32)));
  typedef uint32_t Word8 __attribute__((vector_size(32)));
  for (int64_t run = 0; run < runs; ++run, values += kRun) {
    // Magnitudes compare as their bits do; less one, zero is the largest.
    Word8 most = {}, least = ~Word8{};
    for (int64_t i = 0; i < kRun; i += 8) {
      Word8 x;
      std::memcpy(&x, values + i, sizeof x);
      x &= 0x7fffffff;
      most = most > x ? most : x;
      const Word8 less_one = x - 1;
      least = least < less_one ? least : less_one;
    }
    uint32_t largest = 0, smallest = ~uint32_t{0};
    for (int i = 0; i < 8; ++i)
      largest = std::max<uint32_t>(largest, most[i]), smallest = std::min<uint32_t>(smallest, least[i]);
    if (largest == 0) {
      sums[run] = {0, 0, true};
      continue;
    }
    const int top = static_cast<int>(largest >> 23), bottom = static_cast<int>((smallest + 1) >> 23);
    if (top == 0xff || bottom == 0 || top - bottom > kWidestRange) {
      sums[run] = {0, 0, false};
      continue;
    }
    // 1.5 * 2^52 u: adding and taking it away again rounds to multiples of u.
    const double rounder =
        std::bit_cast<double>(static_cast<uint64_t>(2 * (top - 127) - 44 + 52 + 1023) << 52 | uint64_t{1} << 51);
    Double4 high[4] = {}, low[4] = {};
    for (int64_t i = 0; i < kRun; i += 16) {
      for (int j = 0; j < 4; ++j) {
        Float4 x;
        std::memcpy(&x, values + i + 4 * j, sizeof x);
        const Double4 wide = __builtin_convertvector(x, Double4);
        const Double4 square = wide * wide;
        const Double4 rounded = (square + rounder) - rounder;
        high[j] += rounded;
        low[j] += square - rounded;
      }
    }
    const Double4 h = (high[0] + high[1]) + (high[2] + high[3]), l = (low[0] + low[1]) + (low[2] + low[3]);
    sums[run] = {(h[0] + h[1]) + (h[2] + h[3]), (l[0] + l[1]) + (l[2] + l[3]), true};
  }
}

}  // namespace

void ExactSum::add(double term) {
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    if (mantissa != 0)
      ++nans_;
    else if (bits >> 63)
      ++negative_infinities_;
    else
      ++positive_infinities_;
    return;
  }
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  // The lowest bit weighs 2^(position - 1074).
  const int position = exponent == 0 ? 0 : exponent - 1;
  const int digit = position >> 5, shift = position & 31;
  const int64_t low = static_cast<int64_t>(mantissa << shift & kDigitMask);
  const uint64_t rest = shift == 0 ? mantissa >> 32 : mantissa >> (32 - shift);
  const int64_t middle = static_cast<int64_t>(rest & kDigitMask), high = static_cast<int64_t>(rest >> 32);
  const int64_t sign = bits >> 63 ? -1 : 1;
  digits_[digit] += sign * low;
  digits_[digit + 1] += sign * middle;
  digits_[digit + 2] += sign * high;
  if (++pending_ >= kMostPending) carry();
}

void ExactSum::carry() {
  int64_t carried = 0;
  for (int i = 0; i + 1 < kDigits; ++i) {
    const int64_t total = digits_[i] + carried;
    digits_[i] = total & kDigitMask;
    carried = total >> 32;
  }
  digits_[kDigits - 1] += carried;
  pending_ = 0;
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum addend = other;
  addend.carry();
  carry();
  for (int i = 0; i < kDigits; ++i) digits_[i] += addend.digits_[i];
  pending_ = 1;
  positive_infinities_ += addend.positive_infinities_;
  negative_infinities_ += addend.negative_infinities_;
  nans_ += addend.nans_;
}

void ExactSum::add_squares(const float* values, int64_t n) {
  BALLAST_CHECK(n >= 0, "n {}", n);
  constexpr int64_t kBatch = 64;
  RunSum sums[kBatch];
  float last[kRun] = {};  // the end of the array, and zeros
  while (n > 0) {
    const float* source = values;
    int64_t runs = std::min(n / kRun, kBatch);
    if (runs == 0) {
      std::memcpy(last, values, static_cast<size_t>(n) * sizeof(float));
      source = last;
      runs = 1;
    }
    sum_runs(source, runs, sums);
    for (int64_t run = 0; run < runs; ++run) {
      if (sums[run].exact) {
        add(sums[run].high);
        add(sums[run].low);
        continue;
      }
      for (int64_t i = run * kRun; i < (run + 1) * kRun; ++i) add(static_cast<double>(source[i]) * source[i]);
    }
    values += runs * kRun, n -= runs * kRun;
  }
}

double ExactSum::value() const {
  if (nans_ > 0 || (positive_infinities_ > 0 && negative_infinities_ > 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (positive_infinities_ > 0) return std::numeric_limits<double>::infinity();
  if (negative_infinities_ > 0) return -std::numeric_limits<double>::infinity();
  ExactSum sum = *this;
  sum.carry();
  const bool negative = sum.digits_[kDigits - 1] < 0;
  if (negative) {
    for (int64_t& digit : sum.digits_) digit = -digit;
    sum.carry();
  }
  int top = kDigits - 1;
  while (top >= 0 && sum.digits_[top] == 0) --top;
  if (top < 0) return 0.0;
  // Digits are below 2^32 but for the last, which is above 2^32 only for sums far outside double.
  if (sum.digits_[kDigits - 1] > kDigitMask)
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  const auto bit = [&sum](int index) { return sum.digits_[index >> 5] >> (index & 31) & 1; };
  const int length = 32 * top + std::bit_width(static_cast<uint64_t>(sum.digits_[top]));
  const int shift = std::max(0, length - 53);
  uint64_t mantissa = 0;
  for (int i = length - 1; i >= shift; --i) mantissa = mantissa << 1 | static_cast<uint64_t>(bit(i));
  if (shift > 0 && bit(shift - 1)) {
    bool sticky = false;
    for (int i = 0; i < shift - 1 && !sticky; ++i) sticky = bit(i);
    if (sticky || (mantissa & 1)) ++mantissa;
  }
  const double magnitude = std::ldexp(static_cast<double>(mantissa), shift - 1074);
  return negative ? -magnitude : magnitude;
}

ExactSum::Words ExactSum::words() const {
  ExactSum sum = *this;
  sum.carry();
  Words words;
  std::copy(sum.digits_.begin(), sum.digits_.end(), words.begin());
  words[kDigits] = sum.positive_infinities_;
  words[kDigits + 1] = sum.negative_infinities_;
  words[kDigits + 2] = sum.nans_;
  return words;
}

ExactSum ExactSum::from_words(std::span<const int64_t, kWords> words) {
  ExactSum sum;
  for (int i = 0; i < kDigits; ++i) {
    BALLAST_CHECK(words[i] > -(int64_t{1} << 62) && words[i] < int64_t{1} << 62, "word {} of an exact sum is {}", i,
                  words[i]);
    sum.digits_[i] = words[i];
  }
  sum.positive_infinities_ = words[kDigits];
  sum.negative_infinities_ = words[kDigits + 1];
  sum.nans_ = words[kDigits + 2];
  sum.carry();
  return sum;
}

}  // namespace ballast
