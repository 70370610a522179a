#include "ballast/plan/attention.h"

#include <algorithm>

namespace ballast {

namespace {

// Sum over x in [0, n) of min(max(x + shift, 0), limit): queries one by one, each with the keys of a span that begin before it.
double ramp(int64_t n, int64_t shift, int64_t limit) {
  const int64_t begin = std::clamp<int64_t>(-shift, 0, n), full = std::clamp<int64_t>(limit - shift, begin, n);
  const auto rising = static_cast<double>(full - begin);
  return rising * static_cast<double>(begin + shift) + rising * (rising - 1) / 2 + static_cast<double>(n - full) * static_cast<double>(limit);
}

}  // namespace

double causal_pairs(int64_t length, int64_t window) { return ramp(length, 1, window > 0 ? std::min(window, length) : length); }

double visible_pairs(const AttendUnit& unit, int64_t window) {
  double pairs = 0;
  for (const RowSpan& q : unit.queries) {
    for (const RowSpan& k : unit.keys) {
      const int64_t seen = q.position + 1 - k.position;   // keys at or before the first query
      pairs += ramp(q.count, seen, k.count);
      if (window > 0) pairs -= ramp(q.count, seen - window, k.count);
    }
  }
  return pairs;
}

}  // namespace ballast
