// Values of every learning-rate curve at its corners and in between.
#include "ballast/plan/schedule_lr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ballast/base/error.h"

namespace ballast {
namespace {

struct Point {
  LrSchedule schedule;
  int64_t step;
  double lr;
};

TEST(LearningRate, HasTheseValues) {
  const LrSchedule constant{.kind = "constant", .lr = 2, .min_lr = 0, .warmup = 4, .steps = 10};
  const LrSchedule linear{.kind = "linear", .lr = 2, .min_lr = 1, .warmup = 4, .steps = 12};
  const LrSchedule cosine{.kind = "cosine", .lr = 6e-4, .min_lr = 6e-5, .warmup = 20, .steps = 100};
  const LrSchedule no_warmup{.kind = "cosine", .lr = 1, .min_lr = 0, .warmup = 0, .steps = 5};
  const LrSchedule wsd{.kind = "wsd", .lr = 1, .min_lr = 0.2, .warmup = 10, .steps = 100, .decay = 40};
  const LrSchedule wsd_tenth{.kind = "wsd", .lr = 1, .min_lr = 0, .warmup = 0, .steps = 100};
  const LrSchedule one{.kind = "cosine", .lr = 3, .min_lr = 1, .warmup = 0, .steps = 1};
  const LrSchedule all_warmup{.kind = "linear", .lr = 1, .min_lr = 0, .warmup = 10, .steps = 10};
  const std::vector<Point> table = {
      {constant, 1, 0.5},
      {constant, 4, 2},
      {constant, 5, 2},
      {constant, 10, 2},
      {constant, 1000, 2},
      {linear, 2, 1},
      {linear, 4, 2},
      {linear, 5, 1.875},
      {linear, 8, 1.5},
      {linear, 12, 1},
      {linear, 13, 1},
      {cosine, 1, 3e-5},
      {cosine, 20, 6e-4},
      {cosine, 60, 3.3e-4},
      {cosine, 40, 6e-5 + 5.4e-4 * (2 + std::sqrt(2.0)) / 4},
      {cosine, 100, 6e-5},
      {cosine, 200, 6e-5},
      {no_warmup, 1, 1},
      {no_warmup, 2, (2 + std::sqrt(2.0)) / 4},
      {no_warmup, 3, 0.5},
      {no_warmup, 5, 0},
      {wsd, 5, 0.5},
      {wsd, 10, 1},
      {wsd, 59, 1},
      {wsd, 60, 1},
      {wsd, 80, 0.6},
      {wsd, 100, 0.2},
      {wsd, 101, 0.2},
      {wsd_tenth, 1, 1},
      {wsd_tenth, 90, 1},
      {wsd_tenth, 95, 0.5},
      {wsd_tenth, 100, 0},
      {one, 1, 3},
      {all_warmup, 10, 1},
      {all_warmup, 5, 0.5},
  };
  for (const auto& [schedule, step, lr] : table)
    EXPECT_NEAR(learning_rate(schedule, step), lr, 1e-15 + 1e-12 * lr) << schedule.kind << " " << step;
  // Exact at the corners, not only near.
  EXPECT_EQ(learning_rate(cosine, 20), 6e-4);
  EXPECT_EQ(learning_rate(cosine, 100), 6e-5);
}

TEST(LearningRate, NeverLeavesItsBoundsAndFallsAfterThePeak) {
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    const LrSchedule schedule{.kind = kind, .lr = 1e-3, .min_lr = 1e-5, .warmup = 13, .steps = 97};
    for (int64_t step = 1; step < 120; ++step) {
      const double now = learning_rate(schedule, step), next = learning_rate(schedule, step + 1);
      EXPECT_GT(now, 0);
      EXPECT_LE(now, 1e-3);
      if (step < 13) {
        EXPECT_GT(next, now);
      } else {
        EXPECT_LE(next, now);
      }
    }
  }
}

TEST(CheckSchedule, RefusesNamingTheKey) {
  const std::vector<std::pair<LrSchedule, std::string>> table = {
      {{.kind = "cosin"}, "did you mean 'cosine'"},
      {{.lr = -1}, "optimizer.lr"},
      {{.lr = std::nan("")}, "optimizer.lr"},
      {{.lr = 1e-3, .min_lr = 1e-2}, "optimizer.schedule.min_lr"},
      {{.steps = 0}, "train.steps"},
      {{.warmup = -1, .steps = 10}, "optimizer.schedule.warmup"},
      {{.kind = "wsd", .warmup = 5, .steps = 10, .decay = 6}, "optimizer.schedule.decay"},
  };
  for (const auto& [schedule, expected] : table) {
    try {
      check_schedule(schedule);
      ADD_FAILURE() << "accepted: " << expected;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
  check_schedule({.kind = "wsd", .warmup = 5, .steps = 10, .decay = 5});
  // A run that ends inside its warm-up.
  const LrSchedule trial{.kind = "cosine", .lr = 1, .warmup = 20, .steps = 3};
  check_schedule(trial);
  EXPECT_EQ(learning_rate(trial, 3), 0.15);
}

}  // namespace
}  // namespace ballast
