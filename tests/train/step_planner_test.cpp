// Ranks that planned different steps are told where they part: at the first of the things that follow from each other.
#include "ballast/train/step_planner.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(PlanFingerprints, TheFirstDifferenceIsNamed) {
  const PlanFingerprints mine{1, 2, 3};
  EXPECT_EQ(first_difference(mine, {1, 2, 3}), nullptr);
  EXPECT_STREQ(first_difference(mine, {1, 2, 4}), "order of operations");
  EXPECT_STREQ(first_difference(mine, {1, 4, 4}), "layout");
  EXPECT_STREQ(first_difference(mine, {4, 4, 4}), "selection");
  EXPECT_STREQ(first_difference(mine, {4, 2, 3}), "selection");
}

}  // namespace
}  // namespace ballast
