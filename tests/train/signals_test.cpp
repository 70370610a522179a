// One request to stop, however often it is delivered, and a second one that ends the process.
#include "ballast/train/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "ballast/base/error.h"

namespace ballast {
namespace {

TEST(SignalWatch, TakesOneRequestDeliveredTwiceAsOne) {
  const SignalWatch watch;
  EXPECT_FALSE(stop_requested());
  raise(SIGINT);
  EXPECT_TRUE(stop_requested());
  raise(SIGINT);   // would have ended the process
  raise(SIGTERM);
  EXPECT_TRUE(stop_requested());
}

TEST(SignalWatch, ForgetsTheRequestsOfAnEarlierWatch) {
  {
    const SignalWatch watch;
    raise(SIGTERM);
  }
  const SignalWatch watch;
  EXPECT_FALSE(stop_requested());
}

TEST(SignalWatchDeathTest, EndsAtOnceOnALaterInterrupt) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        raise(SIGINT);
        usleep(1100 * 1000);
        raise(SIGTERM);   // asks for the same as the first
        raise(SIGINT);
        _exit(0);
      },
      testing::ExitedWithCode(exit_code(ErrorKind::Interrupted)), "");
}

}  // namespace
}  // namespace ballast
