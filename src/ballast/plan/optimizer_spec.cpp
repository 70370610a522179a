// States and legal values of the optimizers.
#include "ballast/plan/optimizer_spec.h"

#include <fmt/format.h>

#include "ballast/base/error.h"

namespace ballast {
namespace {

void check_range(const char* key, double value, double low, double high, const char* expected) {
  if (value >= low && value < high) return;  // NaN is in no range
  throw Error(ErrorKind::Usage, "value out of range")
      .at(std::string("optimizer.") + key)
      .found(fmt::format("{}", value))
      .expected(expected);
}

}  // namespace

std::vector<OptimizerState> optimizer_state_specs(const OptimizerSpec& spec) {
  if (spec.name == "adamw") return {{"exp_avg"}, {"exp_avg_sq"}};
  if (spec.name == "lion") return {{"exp_avg"}};
  if (spec.name == "sgd")
    return spec.momentum == 0 ? std::vector<OptimizerState>{} : std::vector<OptimizerState>{{"momentum"}};
  const std::string near = nearest(spec.name, std::vector<std::string>{"adamw", "sgd", "lion"});
  throw Error(ErrorKind::Usage, "unknown optimizer")
      .at("optimizer.name")
      .found(printable(spec.name))
      .expected("adamw, sgd or lion")
      .cure(near.empty() ? "choose one of these" : "did you mean '" + near + "'?");
}

int64_t optimizer_state_bytes(const OptimizerSpec& spec) {
  int64_t bytes = 0;
  for (const OptimizerState& state : optimizer_state_specs(spec)) bytes += size_of(state.dtype);
  return bytes;
}

void check_optimizer(const OptimizerSpec& spec) {
  optimizer_state_specs(spec);
  check_range("betas", spec.beta1, 0, 1, "two numbers in [0, 1)");
  check_range("betas", spec.beta2, 0, 1, "two numbers in [0, 1)");
  check_range("eps", spec.eps, 0, 1, "a number in [0, 1)");
  check_range("weight_decay", spec.weight_decay, 0, 1e6, "a number of at least 0");
  check_range("momentum", spec.momentum, 0, 1, "a number in [0, 1)");
}

}  // namespace ballast
