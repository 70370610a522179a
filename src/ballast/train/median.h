#pragma once
// The median of measurements: the mean of the two middle ones where their number is even; NaN of none.
#include <algorithm>
#include <cmath>
#include <vector>

namespace ballast {

inline double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace ballast
