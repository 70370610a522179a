// Inverse frequencies of every RoPE scaling against transformers 5.24 (ROPE_INIT_FUNCTIONS, head_dim 16), and the rotation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/kernel/rope.h"
#include "ballast/model/segment_rope.h"

namespace ballast::segment {
namespace {

ModelConfig with(RopeScaling scaling, double theta, double factor, int64_t original) {
  ModelConfig config;
  config.head_dim = 16;
  config.max_positions = 256;
  config.positions = PositionKind::Rope;
  config.rope.theta = theta;
  config.rope.scaling = scaling;
  config.rope.factor = factor;
  config.rope.original_max_positions = original;
  return config;
}

void expect_frequencies(const RopeFrequencies& ours, const std::vector<double>& expected, double factor) {
  ASSERT_EQ(ours.inverse.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(static_cast<double>(ours.inverse[i]) / expected[i], 1.0, 1e-6) << i;
  EXPECT_NEAR(static_cast<double>(ours.factor), factor, 1e-6);
}

TEST(RopeFrequencies, MatchTransformers) {
  expect_frequencies(rope_frequencies(with(RopeScaling::Linear, 1e4, 4, 0), 0),
                     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}, 1);
  expect_frequencies(rope_frequencies(with(RopeScaling::Dynamic, 1e4, 2, 0), 100),
                     {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}, 1);
  expect_frequencies(rope_frequencies(with(RopeScaling::Dynamic, 1e4, 2, 0), 1000),
                     {1, 0.240412042, 0.057797946, 0.0138953235, 0.00334060285, 0.000803121133, 0.000193079992, 4.64187542e-05}, 1);
  expect_frequencies(rope_frequencies(with(RopeScaling::Llama3, 5e5, 8, 8192), 0),
                     {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}, 1);
  expect_frequencies(rope_frequencies(with(RopeScaling::Yarn, 1e4, 4, 64), 0),
                     {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}, 1.13862944);
  ModelConfig config = with(RopeScaling::Yarn, 1e6, 8, 4096);
  config.rope.truncate = false;
  config.rope.beta_fast = 16, config.rope.beta_slow = 2;
  config.rope.attention_factor = 1.5;
  expect_frequencies(rope_frequencies(config, 0),
                     {1, 0.177827939, 0.0316227786, 0.00213670055, 0.000125000006, 2.22284925e-05, 3.95284678e-06, 7.02926684e-07}, 1.5);
}

// Dynamic NTK looks at each sequence alone: a long neighbour does not change a short one.
TEST(RopeTables, DynamicScalingIsPerSequence) {
  const ModelConfig config = with(RopeScaling::Dynamic, 1e4, 2, 20);
  MicroBatch batch;
  batch.starts = {0, 10, 50};
  batch.positions = at::cat({at::arange(10, at::kLong), at::arange(40, at::kLong)});
  const RopeTables tables = rope_tables(config, batch);
  const float plain = rope_frequencies(config, 10).inverse[3], stretched = rope_frequencies(config, 40).inverse[3];
  ASSERT_LT(stretched, plain);
  EXPECT_FLOAT_EQ(tables.sines[9][3].item<float>(), std::sin(9 * plain));
  EXPECT_FLOAT_EQ(tables.sines[19][3].item<float>(), std::sin(9 * stretched));
}

TEST(Rotate, TurnsHalvesAndBack) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({5, 3 * 8}), angle = at::randn({5, 4}), y = x.clone();
  kernel::rotate(y, 8, angle.cos(), angle.sin(), false);
  const at::Tensor heads = x.view({5, 3, 8}), a = heads.narrow(2, 0, 4), b = heads.narrow(2, 4, 4);
  const at::Tensor c = angle.cos().unsqueeze(1), s = angle.sin().unsqueeze(1);
  EXPECT_TRUE(at::allclose(y.view({5, 3, 8}), at::cat({a * c - b * s, b * c + a * s}, 2), 1e-6, 1e-6));
  kernel::rotate(y, 8, angle.cos(), angle.sin(), true);
  EXPECT_TRUE(at::allclose(y, x, 1e-6, 1e-6));
}

}  // namespace
}  // namespace ballast::segment
