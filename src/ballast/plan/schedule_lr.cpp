// The learning-rate curves of schedule_lr.h.
#include "ballast/plan/schedule_lr.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {
namespace {

constexpr std::array<const char*, 4> kKinds = {"constant", "linear", "cosine", "wsd"};

int64_t decay_steps(const LrSchedule& s) { return s.decay > 0 ? s.decay : (s.steps + 9) / 10; }

Error wrong(const char* key, const std::string& found, const std::string& expected) {
  return Error(ErrorKind::Usage, "value out of range")
      .at(std::string("optimizer.") + key)
      .found(found)
      .expected(expected);
}

}  // namespace

double learning_rate(const LrSchedule& s, int64_t step) {
  BALLAST_CHECK(step >= 1, "steps count from 1, not {}", step);
  if (step < s.warmup) return s.lr * static_cast<double>(step) / static_cast<double>(s.warmup);
  if (s.kind == "constant") return s.lr;
  const int64_t peak = std::max<int64_t>(s.warmup, 1);
  const int64_t start = s.kind == "wsd" ? std::max(s.steps - decay_steps(s), peak) : peak;
  if (step <= start) return s.lr;
  if (step >= s.steps) return s.min_lr;
  const double p = static_cast<double>(step - start) / static_cast<double>(s.steps - start);
  if (s.kind == "cosine") return s.min_lr + (s.lr - s.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * p));
  return s.lr + (s.min_lr - s.lr) * p;
}

void check_schedule(const LrSchedule& s) {
  if (std::find(kKinds.begin(), kKinds.end(), s.kind) == kKinds.end()) {
    const std::string near = nearest(s.kind, kKinds);
    throw wrong("schedule.kind", printable(s.kind), "constant, linear, cosine or wsd")
        .cure(near.empty() ? "choose one of these" : "did you mean '" + near + "'?");
  }
  if (!(s.lr >= 0) || !std::isfinite(s.lr)) throw wrong("lr", fmt::format("{}", s.lr), "a finite number of at least 0");
  if (!(s.min_lr >= 0 && s.min_lr <= s.lr))
    throw wrong("schedule.min_lr", fmt::format("{}", s.min_lr), fmt::format("0 to lr = {}", s.lr));
  if (s.steps < 1)
    throw Error(ErrorKind::Usage, "value out of range")
        .at("train.steps")
        .found(fmt::format("{}", s.steps))
        .expected("at least 1");
  // A run shorter than its warm-up is a common trial: it ends on the way up.
  if (s.warmup < 0) throw wrong("schedule.warmup", fmt::format("{}", s.warmup), "at least 0");
  if (s.decay < 0 || (s.kind == "wsd" && s.warmup <= s.steps && s.decay > s.steps - s.warmup))
    throw wrong("schedule.decay", fmt::format("{}", s.decay),
                fmt::format("0 to {} steps (the steps after the warm-up)", s.steps - s.warmup));
}

}  // namespace ballast
