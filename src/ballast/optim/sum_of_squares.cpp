// Each thread sums its part; sums of integers merge in any order.
#include "ballast/optim/sum_of_squares.h"

#include <ATen/Parallel.h>

#include <mutex>

namespace ballast {

void add_squares(ExactSum& sum, const float* values, int64_t n) {
  constexpr int64_t kGrain = int64_t{1} << 16;  // elements worth a thread
  std::mutex mutex;
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    ExactSum part;
    part.add_squares(values + begin, end - begin);
    const std::lock_guard lock(mutex);
    sum.merge(part);
  });
}

}  // namespace ballast
