#pragma once
// The exact sum of squares of a buffer on the threads of ATen: the same words for any number of threads.
#include <cstdint>

#include "ballast/base/exact_sum.h"

namespace ballast {

void add_squares(ExactSum& sum, const float* values, int64_t n);

}  // namespace ballast
