#include "tests/engine/expectations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ballast::testing {

Level level(const char* name, int64_t size) { return {name, size, {}, {}}; }

namespace {

// Of two updates, by norm. Weights that are neighbours in fp32 count as equal: near 1 a step between them may be a ten-thousandth of an update.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& start) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::nextafter(a[i], b[i]) != b[i]) difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]) - start[i], 2);
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

}  // namespace

// The reference: one process, one micro-batch, nothing sharded, nothing recomputed.
const Outcome& reference(const Case& like) {
  static std::map<std::string, Outcome> known;
  Case c = like;
  c.levels = {level("node", 1)};
  c.placement = "ddp";
  c.layout = "packed";
  c.sequence = {};
  c.micro_tokens = 4096;
  c.recompute_every = 0;
  c.prefetch = 1;
  const std::string key = c.name() + fmt::format(" {} longest {} window {} dropout {} seed {}", c.optimizer.name, c.longest, c.model.window_of(0), c.model.dropout_attention, c.seed);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, run(c)).first;
  return found->second;
}

// All measures are relative and in fp32: loss and gradient norm of every step; per tensor the norm of the difference over the norm of the first step's
// gradient, and of what all steps together changed. Seen at most over all layouts: loss 2e-8, norm 1e-7, gradient 1.3e-6, change 2.7e-6.
void expect_equal_to_reference(const Outcome& got, const Case& c) {
  const Outcome& want = reference(c);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (const auto& [name, values] : want.gradients) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(got.gradients.at(name)[i]) - values[i], 2);
      size += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(size)) << name;
  }
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t s = 0; s < want.losses.size(); ++s) {
    EXPECT_NEAR(got.losses[s], want.losses[s], 1e-6 * want.losses[s]) << "step " << s + 1;
    EXPECT_NEAR(got.norms[s], want.norms[s], 1e-5 * want.norms[s]) << "step " << s + 1;
  }
  EXPECT_NEAR(got.eval_loss, want.eval_loss, 1e-6 * want.eval_loss);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, values] : want.weights) {
    const auto found = got.weights.find(name);
    ASSERT_NE(found, got.weights.end()) << name;
    EXPECT_EQ(got.initial.at(name), want.initial.at(name)) << name;
    EXPECT_LE(relative_difference(found->second, values, want.initial.at(name)), 1e-5) << name;
  }
}

void expect_plan_is_exact(const Outcome& got) {
  EXPECT_EQ(got.diverged, std::vector<std::string>{});
  EXPECT_EQ(got.padding, 0.0);
  EXPECT_EQ(got.bytes, got.planned_bytes);
  EXPECT_EQ(got.layout_bytes, got.planned_layout_bytes);
  EXPECT_EQ(got.memory, got.planned_memory);
}

}  // namespace ballast::testing
