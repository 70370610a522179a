// The yardstick of MFU under a machine that was busy when it was first measured.
#include "ballast/train/machine.h"

#include <gtest/gtest.h>

#include <vector>

namespace ballast {
namespace {

TEST(GemmPeak, IsMeasuredAgainWhereAStepWasFasterAndAFewTimesAtMost) {
  std::vector<double> rates{50, 80, 70, 60, 999};
  size_t measured = 0;
  GemmPeak peak([&] { return rates.at(measured++); });
  EXPECT_EQ(peak.rate(), 50);
  EXPECT_FALSE(peak.doubt(50));
  EXPECT_EQ(measured, 1u);
  EXPECT_TRUE(peak.doubt(75));
  EXPECT_EQ(peak.rate(), 80);    // what was measured, not what the step achieved
  EXPECT_FALSE(peak.doubt(75));
  EXPECT_TRUE(peak.doubt(90));
  EXPECT_EQ(peak.rate(), 80);    // a lower one says that the machine is busy now
  EXPECT_TRUE(peak.doubt(90));
  EXPECT_FALSE(peak.doubt(90));
  EXPECT_EQ(measured, 4u);
}

}  // namespace
}  // namespace ballast
