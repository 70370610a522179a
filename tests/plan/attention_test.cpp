// Pairs counted in closed form against counting them.
#include "ballast/plan/attention.h"

#include <gtest/gtest.h>

#include <random>

namespace ballast {
namespace {

TEST(VisiblePairs, EqualsCounting) {
  std::mt19937_64 random(3);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  const auto spans = [&] {  // ascending, with gaps and empty ones
    std::vector<RowSpan> result;
    int64_t row = 0, position = 0;
    for (int64_t i = below(4); i > 0; --i) {
      row += below(3), position += below(20);
      const int64_t count = below(3) == 0 ? below(2) : below(25);
      result.push_back({row, count, position});
      row += count, position += count;
    }
    return result;
  };
  for (int trial = 0; trial < 3000; ++trial) {
    const AttendUnit unit{spans(), spans(), 0};
    const int64_t window = below(3) == 0 ? 0 : 1 + below(60);
    double expected = 0;
    for (const RowSpan& q : unit.queries)
      for (const RowSpan& k : unit.keys)
        for (int64_t i = q.position; i < q.position + q.count; ++i)
          for (int64_t j = k.position; j < k.position + k.count; ++j)
            if (j <= i && (window == 0 || j > i - window)) expected += 1;
    EXPECT_EQ(visible_pairs(unit, window), expected) << "trial " << trial << " window " << window;
  }
}

}  // namespace
}  // namespace ballast
