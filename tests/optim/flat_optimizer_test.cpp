// The flat optimizers against torch.optim (golden/make_updates.py), and their independence of threads and cuts.
#include "ballast/optim/flat_optimizer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "ballast/base/error.h"

namespace ballast {
namespace {

using Golden = std::map<std::string, std::vector<double>>;
constexpr int64_t kElements = 30, kDecayed = 20, kPadding = 7;

Golden read_golden() {
  std::ifstream file(BALLAST_SOURCE_DIR "/tests/optim/golden/updates.txt");
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name;
    while (words >> word) golden[name].push_back(std::strtod(word.c_str(), nullptr));
  }
  return golden;
}

at::Tensor padded(const std::vector<double>& values, float padding) {
  at::Tensor tensor = at::full({static_cast<int64_t>(values.size()) + kPadding}, padding, at::kFloat);
  for (size_t i = 0; i < values.size(); ++i) tensor.data_ptr<float>()[i] = static_cast<float>(values[i]);
  return tensor;
}

// Relative to the element; for states also to a millionth of the largest, where terms of unlike size cancel.
void expect_near(const at::Tensor& tensor, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(expected.size()), kElements) << what;
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (int64_t i = 0; i < kElements; ++i)
    EXPECT_NEAR(tensor.data_ptr<float>()[i], expected[i],
                1e-6 * std::abs(expected[i]) + 1e-7 * largest * (what.find("weights") == std::string::npos))
        << what << " element " << i;
}

void expect_bits(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.nbytes(), b.nbytes());
  EXPECT_EQ(std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()), 0);
}

UpdateBuffers zero_states(const OptimizerSpec& spec, at::Tensor weights, at::Tensor gradient) {
  UpdateBuffers buffers{std::move(weights), std::move(gradient), {}, {}};
  for (size_t i = 0; i < optimizer_state_specs(spec).size(); ++i)
    buffers.states.push_back(at::zeros_like(buffers.weights));
  return buffers;
}

struct GoldenCase {
  std::string name;
  OptimizerSpec spec;
  std::vector<std::string> states;
};

class FlatOptimizerGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(FlatOptimizerGolden, EqualsTorchAfterFiveSteps) {
  const Golden golden = read_golden();
  const auto& [name, spec, states] = GetParam();
  UpdateBuffers buffers = zero_states(spec, padded(golden.at("start"), 42), at::Tensor());
  buffers.copy = at::full({kElements + kPadding}, 7, at::kBFloat16);
  for (int64_t step = 1; step <= 5; ++step) {
    buffers.gradient = padded(golden.at("gradient" + std::to_string(step - 1)), 1e9);
    apply_update(spec, {.step = step, .lr = golden.at("lr")[step - 1], .scale = 0.75},
                 {{0, 13, true}, {13, kDecayed, true}, {kDecayed, kElements, false}}, buffers);
  }
  expect_near(buffers.weights, golden.at(name + ".weights"), name + ".weights");
  for (size_t i = 0; i < states.size(); ++i)
    expect_near(buffers.states[i], golden.at(name + "." + states[i]), name + "." + states[i]);
  // The copy is the rounded master, and padding is untouched everywhere.
  expect_bits(buffers.copy.slice(0, 0, kElements).contiguous(),
              buffers.weights.slice(0, 0, kElements).to(at::kBFloat16));
  for (int64_t i = kElements; i < kElements + kPadding; ++i) {
    EXPECT_EQ(buffers.weights[i].item<float>(), 42);
    EXPECT_EQ(buffers.copy[i].item<float>(), 7);
    for (const at::Tensor& state : buffers.states) EXPECT_EQ(state[i].item<float>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FlatOptimizerGolden,
    testing::Values(
        GoldenCase{"adamw",
                   {.name = "adamw", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                   {"exp_avg", "exp_avg_sq"}},
        GoldenCase{
            "adamw-eps", {.name = "adamw", .beta1 = 0.8, .beta2 = 0.999, .eps = 1e-4}, {"exp_avg", "exp_avg_sq"}},
        GoldenCase{"sgd", {.name = "sgd", .weight_decay = 0.05, .momentum = 0.9}, {"momentum_buffer"}},
        GoldenCase{"sgd-plain", {.name = "sgd", .weight_decay = 0.05, .momentum = 0}, {}},
        GoldenCase{"lion", {.name = "lion", .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3}, {"exp_avg"}}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

std::vector<OptimizerSpec> every_spec() {
  return {{.name = "adamw", .weight_decay = 0.1},
          {.name = "sgd", .weight_decay = 0.1},
          {.name = "sgd", .momentum = 0},
          {.name = "lion", .weight_decay = 0.1}};
}

TEST(FlatOptimizer, BitsDoNotDependOnThreadsOrCuts) {
  const int64_t n = 100'003;
  const int threads = at::get_num_threads();
  for (const OptimizerSpec& spec : every_spec()) {
    at::manual_seed(1);
    const at::Tensor start = at::randn({n}), gradient = at::randn({n});
    // Pieces of the whole as ranks would hold them, on 1 to 4 threads; one piece on one thread is the reference.
    std::vector<at::Tensor> reference;
    for (int pieces : {1, 2, 3, 7}) {
      at::set_num_threads(pieces < 5 ? pieces : 1);
      UpdateBuffers whole = zero_states(spec, start.clone(), gradient);
      whole.copy = at::zeros({n}, at::kBFloat16);
      for (int piece = 0; piece < pieces; ++piece) {
        const int64_t begin = n * piece / pieces, end = n * (piece + 1) / pieces;
        UpdateBuffers part{
            whole.weights.slice(0, begin, end), gradient.slice(0, begin, end), {}, whole.copy.slice(0, begin, end)};
        for (const at::Tensor& state : whole.states) part.states.push_back(state.slice(0, begin, end));
        for (int64_t step = 1; step <= 3; ++step)
          apply_update(spec, {.step = step, .lr = 1e-2, .scale = 0.5}, {{0, end - begin, true}}, part);
      }
      std::vector<at::Tensor> result = whole.states;
      result.push_back(whole.weights), result.push_back(whole.copy);
      if (pieces == 1) reference = result;
      for (size_t i = 0; i < result.size(); ++i) expect_bits(result[i], reference[i]);
    }
  }
  at::set_num_threads(threads);
}

TEST(FlatOptimizer, EmptyRangesChangeNothing) {
  for (const OptimizerSpec& spec : every_spec()) {
    UpdateBuffers buffers = zero_states(spec, at::ones({5}), at::ones({5}));
    apply_update(spec, {.step = 1, .lr = 1}, {}, buffers);
    apply_update(spec, {.step = 1, .lr = 1}, {{3, 3, true}}, buffers);
    expect_bits(buffers.weights, at::ones({5}));
    UpdateBuffers nothing = zero_states(spec, at::empty({0}), at::empty({0}));
    apply_update(spec, {.step = 1, .lr = 1}, {{0, 0, true}}, nothing);
  }
}

TEST(FlatOptimizer, ZeroGradientOnlyDecays) {
  for (OptimizerSpec spec : every_spec()) {
    spec.weight_decay = 0.25;
    UpdateBuffers buffers = zero_states(spec, at::ones({64}), at::zeros({64}));
    apply_update(spec, {.step = 1, .lr = 0.5}, {{0, 32, true}, {32, 64, false}}, buffers);
    EXPECT_EQ(buffers.weights[0].item<float>(), 0.875f) << spec.name;
    EXPECT_EQ(buffers.weights[63].item<float>(), 1.0f) << spec.name;
  }
}

TEST(FlatOptimizer, NonFiniteGradientsReachTheWeights) {
  for (const OptimizerSpec& spec : every_spec()) {
    UpdateBuffers buffers = zero_states(spec, at::ones({40}), at::zeros({40}));
    buffers.copy = at::zeros({40}, at::kBFloat16);
    buffers.gradient[17] = std::numeric_limits<float>::quiet_NaN();
    apply_update(spec, {.step = 1, .lr = 0.5}, {{0, 40, false}}, buffers);
    EXPECT_TRUE(std::isnan(buffers.weights[17].item<float>())) << spec.name;
    EXPECT_TRUE(std::isnan(buffers.copy[17].item<float>())) << spec.name;
    EXPECT_EQ(buffers.weights[16].item<float>(), 1.0f) << spec.name;
  }
}

TEST(FlatOptimizer, CopyRoundsAsATenDoes) {
  // Ties, denormals, the largest float (rounds to infinity), infinities.
  const std::vector<uint32_t> patterns = {0,          0x80000000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001,
                                          0x3f80ffff, 0x00000001, 0x00008000, 0x007fffff, 0x7f7fffff, 0x7f7f0000,
                                          0xff7fffff, 0x7f800000, 0xff800000, 0x3eaaaaab};
  at::Tensor weights = at::empty({static_cast<int64_t>(patterns.size())});
  std::memcpy(weights.data_ptr(), patterns.data(), weights.nbytes());
  const OptimizerSpec lion{.name = "lion"};  // with a zero gradient it leaves every weight as it is, infinities too
  UpdateBuffers buffers = zero_states(lion, weights.clone(), at::zeros_like(weights));
  buffers.copy = at::empty_like(weights, at::kBFloat16);
  apply_update(lion, {.step = 1, .lr = 1}, {{0, weights.numel(), false}}, buffers);
  expect_bits(buffers.weights, weights);
  expect_bits(buffers.copy, weights.to(at::kBFloat16));
}

TEST(FlatOptimizer, RefusesBuffersThatDoNotMatch) {
  const OptimizerSpec spec{.name = "adamw"};
  const UpdateBuffers good = zero_states(spec, at::ones({8}), at::ones({8}));
  UpdateBuffers bad = good;
  bad.states.pop_back();
  EXPECT_THROW(apply_update(spec, {}, {}, bad), Error);
  bad = good, bad.gradient = at::ones({9});
  EXPECT_THROW(apply_update(spec, {}, {}, bad), Error);
  bad = good, bad.weights = at::ones({8}, at::kDouble);
  EXPECT_THROW(apply_update(spec, {}, {}, bad), Error);
  bad = good, bad.copy = at::ones({8});
  EXPECT_THROW(apply_update(spec, {}, {}, bad), Error);
  EXPECT_THROW(apply_update(spec, {}, {{0, 9, true}}, good), Error);
  EXPECT_THROW(apply_update(spec, {.step = 0}, {}, good), Error);
}

TEST(ClipFactor, BringsTheNormDown) {
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_TRUE(std::isnan(clip_factor(std::numeric_limits<double>::infinity(), 1.0)));
  EXPECT_TRUE(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 0.0)));
}

}  // namespace
}  // namespace ballast
