#pragma once
// The learning rate as a pure function of the step, so that a resumed run continues it without any state.
#include <cstdint>
#include <string>

namespace ballast {

struct LrSchedule {
  std::string kind = "cosine";  // constant, linear, cosine, wsd (warm-up, stable, decay)
  double lr = 1e-3;             // the highest rate
  double min_lr = 0;            // at the last step; constant has none
  int64_t warmup = 0;           // steps of linear warm-up; `lr` is reached at step == warmup
  int64_t steps = 1;            // the last step, where min_lr is reached
  int64_t decay = 0;            // wsd: the last `decay` steps fall linearly; 0 means a tenth of the steps
  bool operator==(const LrSchedule&) const = default;
};

// The rate of `step`, counted from 1. With s = max(warmup, 1), T = steps and p = (step - s) / (T - s):
//   step <= warmup  lr * step / warmup
//   linear          lr + (min_lr - lr) p
//   cosine          min_lr + (lr - min_lr) (1 + cos(pi p)) / 2
//   wsd             lr until T - decay, then linear to min_lr at T
// Steps after the last keep its rate.
double learning_rate(const LrSchedule& schedule, int64_t step);
// Throws Error(Usage) naming the key: unknown kind, rates negative or in the wrong order.
void check_schedule(const LrSchedule& schedule);

}  // namespace ballast
