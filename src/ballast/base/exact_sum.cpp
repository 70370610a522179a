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
constexpr int64_t kRun = 64;

// Lane j of 16 holds x[j]^2 + x[j+16]^2 + x[j+32]^2 + x[j+48]^2; then the lanes pair up. A square of a float is exact in
// double, so a fused multiply-add gives the same bits.
BALLAST_CLONES void sum_runs(const float* values, int64_t runs, double* sums) {
  typedef float Float4 __attribute__((vector_size(16)));
  typedef double Double4 __attribute__((vector_size(32)));
  for (int64_t run = 0; run < runs; ++run, values += kRun) {
    Double4 a = {}, b = {}, c = {}, d = {};
    for (int64_t i = 0; i < kRun; i += 16) {
      Float4 x[4];
      std::memcpy(x, values + i, sizeof x);
      const Double4 p = __builtin_convertvector(x[0], Double4), q = __builtin_convertvector(x[1], Double4);
      const Double4 r = __builtin_convertvector(x[2], Double4), s = __builtin_convertvector(x[3], Double4);
      a += p * p, b += q * q, c += r * r, d += s * s;
    }
    const Double4 lanes = (a + b) + (c + d);
    sums[run] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
}

}  // namespace

void ExactSum::add(double term) {
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    if (mantissa != 0) ++nans_;
    else if (bits >> 63) ++negative_infinities_;
    else ++positive_infinities_;
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

void ExactSum::add_squares(const float* values, int64_t n, int64_t offset) {
  BALLAST_CHECK(n >= 0 && offset >= 0, "n {} offset {}", n, offset);
  // A part of a run is summed as the whole run with zeros in the missing places.
  const auto add_part = [this](const float* part, int64_t at, int64_t count) {
    float run[kRun] = {};
    std::memcpy(run + at, part, static_cast<size_t>(count) * sizeof(float));
    double sum = 0;
    sum_runs(run, 1, &sum);
    add(sum);
  };
  if (const int64_t at = offset % kRun; at != 0 && n > 0) {
    const int64_t count = std::min(n, kRun - at);
    add_part(values, at, count);
    values += count, n -= count;
  }
  constexpr int64_t kBatch = 64;
  double sums[kBatch];
  while (n >= kRun) {
    const int64_t runs = std::min(n / kRun, kBatch);
    sum_runs(values, runs, sums);
    for (int64_t i = 0; i < runs; ++i) add(sums[i]);
    values += runs * kRun, n -= runs * kRun;
  }
  if (n > 0) add_part(values, 0, n);
}

double ExactSum::value() const {
  if (nans_ > 0 || (positive_infinities_ > 0 && negative_infinities_ > 0)) return std::numeric_limits<double>::quiet_NaN();
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
  if (sum.digits_[kDigits - 1] > kDigitMask) return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
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
    BALLAST_CHECK(words[i] > -(int64_t{1} << 62) && words[i] < int64_t{1} << 62, "word {} of an exact sum is {}", i, words[i]);
    sum.digits_[i] = words[i];
  }
  sum.positive_infinities_ = words[kDigits];
  sum.negative_infinities_ = words[kDigits + 1];
  sum.nans_ = words[kDigits + 2];
  sum.carry();
  return sum;
}

}  // namespace ballast
