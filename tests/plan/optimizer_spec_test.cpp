// States and bounds of the optimizers as the plan counts them.
#include "ballast/plan/optimizer_spec.h"

#include <gtest/gtest.h>

#include <limits>

#include "ballast/base/error.h"

namespace ballast {
namespace {

std::vector<std::string> names(const OptimizerSpec& spec) {
  std::vector<std::string> out;
  for (const OptimizerState& state : optimizer_state_specs(spec)) out.push_back(state.name);
  return out;
}

TEST(OptimizerSpec, ListsTheStates) {
  EXPECT_EQ(names({.name = "adamw"}), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names({.name = "lion"}), (std::vector<std::string>{"exp_avg"}));
  EXPECT_EQ(names({.name = "sgd"}), (std::vector<std::string>{"momentum"}));
  EXPECT_EQ(names({.name = "sgd", .momentum = 0}), (std::vector<std::string>{}));
  EXPECT_EQ(optimizer_state_bytes({.name = "adamw"}), 8);
  EXPECT_EQ(optimizer_state_bytes({.name = "lion"}), 4);
  EXPECT_EQ(optimizer_state_bytes({.name = "sgd"}), 4);
  EXPECT_EQ(optimizer_state_bytes({.name = "sgd", .momentum = 0}), 0);
}

TEST(OptimizerSpec, RefusesWhatIsOutOfRangeNamingTheKey) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<OptimizerSpec, std::string>> table = {
      {{.name = "adam"}, "did you mean 'adamw'"},
      {{.name = ""}, "optimizer.name"},
      {{.beta1 = 1}, "optimizer.betas"},
      {{.beta2 = -0.1}, "optimizer.betas"},
      {{.beta1 = nan}, "optimizer.betas"},
      {{.eps = -1e-8}, "optimizer.eps"},
      {{.weight_decay = -1}, "optimizer.weight_decay"},
      {{.name = "sgd", .momentum = 1}, "optimizer.momentum"},
  };
  for (const auto& [spec, expected] : table) {
    try {
      check_optimizer(spec);
      ADD_FAILURE() << "accepted: " << expected;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
  check_optimizer({});
  check_optimizer({.name = "sgd", .weight_decay = 0.1, .momentum = 0});
}

}  // namespace
}  // namespace ballast
