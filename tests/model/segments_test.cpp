// Values and gradients of whole chains of segments against double-precision autograd, for every family and switch.
#include <gtest/gtest.h>

#include "ballast/kernel/gemm.h"
#include "model/segments_chain.h"

namespace ballast::segments_test {
namespace {

const std::vector<int64_t> kLengths{1, 7, 70, 1, 133, 64};

struct Errors {
  double hidden, losses, gradients;
  std::string worst;
};

constexpr double kScale = 1.0 / 64;

struct OracleResult {
  at::Tensor hidden, losses;
  std::vector<RoleTensors> gradients;
};

// A copy of the weights in `dtype` through the oracle. A tied table is one leaf.
OracleResult run_oracle(const ModelConfig& config, const MicroBatch& batch, const Parameters& p, at::ScalarType dtype) {
  std::vector<RoleTensors> weights(p.weights.size());
  std::vector<std::pair<at::Tensor, at::Tensor>> made;
  for (size_t s = 0; s < weights.size(); ++s) {
    for (size_t r = 0; r < kRoleCount; ++r) {
      const at::Tensor& w = p.weights[s][r];
      if (!w.defined()) continue;
      for (const auto& [mine, leaf] : made)
        if (mine.is_same(w)) weights[s][r] = leaf;
      if (weights[s][r].defined()) continue;
      weights[s][r] = w.to(dtype).clone().set_requires_grad(true);
      made.emplace_back(w, weights[s][r]);
    }
  }
  const Oracle oracle(config, batch, weights);
  const at::Tensor hidden = oracle.hidden(), losses = oracle.losses(hidden);
  (losses.sum() * kScale).backward();
  OracleResult result{hidden.detach(), losses.detach(), weights};
  for (RoleTensors& tensors : result.gradients)
    for (at::Tensor& t : tensors)
      if (t.defined()) t = t.grad();
  return result;
}

Errors errors_of(const at::Tensor& hidden, const at::Tensor& losses, const std::vector<RoleTensors>& gradients, const OracleResult& exact) {
  Errors errors{relative_error(hidden, exact.hidden), relative_error(losses, exact.losses), 0, ""};
  for (size_t s = 0; s < gradients.size(); ++s) {
    for (size_t r = 0; r < kRoleCount; ++r) {
      if (!gradients[s][r].defined()) continue;
      double error = relative_error(gradients[s][r], exact.gradients[s][r]);
      // A shift of all keys changes no softmax: that gradient is (nearly) zero, so its error is measured by its neighbour's size.
      if (static_cast<Role>(r) == Role::KeyBias)
        error *= (exact.gradients[s][r].norm() / exact.gradients[s][static_cast<size_t>(Role::ValueBias)].norm()).item<double>();
      if (!(error <= errors.gradients)) errors.gradients = error, errors.worst = "segment " + std::to_string(s) + " role " + std::to_string(r);
    }
  }
  return errors;
}

struct Comparison {
  Errors ours, eager;  // eager: ATen's operations in the same dtype
};

Comparison compare(const ModelConfig& config, DType compute) {
  const MicroBatch batch = random_batch(config, kLengths, 3);
  const Parameters p = random_parameters(config, type_of(compute), 11);
  const ChainResult ours = run_chain(config, batch, p, compute, kScale);
  const OracleResult exact = run_oracle(config, batch, p, at::kDouble), eager = run_oracle(config, batch, p, type_of(compute));
  return {errors_of(ours.x_out, ours.losses, p.gradients, exact), errors_of(eager.hidden, eager.losses, eager.gradients, exact)};
}

class Segments : public testing::TestWithParam<Case> {};

TEST_P(Segments, MatchAutogradInFp32) {
  const Errors e = compare(GetParam().config, DType::Float32).ours;
  EXPECT_LE(e.hidden, 2e-6);
  EXPECT_LE(e.losses, 2e-6);
  EXPECT_LE(e.gradients, 1e-5) << e.worst;
}

// What bf16 costs depends on the model; eager execution, which rounds after every operation, is the measure.
TEST_P(Segments, InBf16AreAtLeastAsExactAsEager) {
  const auto [ours, eager] = compare(GetParam().config, DType::BFloat16);
  EXPECT_LE(ours.hidden, eager.hidden);
  EXPECT_LE(ours.losses, eager.losses);
  EXPECT_LE(ours.gradients, eager.gradients) << ours.worst << ", eager " << eager.worst;
}

// The products of CPUs with bf16 units round their operands as eager does: another draw of the same errors.
TEST_P(Segments, WithNativeBf16ProductsAreInTheClassOfEager) {
  const kernel::Bf16Products before = kernel::bf16_products();
  kernel::set_bf16_products(kernel::Bf16Products::Native);
  const auto [ours, eager] = compare(GetParam().config, DType::BFloat16);
  kernel::set_bf16_products(before);
  EXPECT_LE(ours.hidden, 1.2 * eager.hidden);
  EXPECT_LE(ours.losses, 1.2 * eager.losses);
  EXPECT_LE(ours.gradients, 1.2 * eager.gradients) << ours.worst << ", eager " << eager.worst;
}

TEST_P(Segments, RecomputeGivesTheSameBits) {
  const ModelConfig& config = GetParam().config;
  for (DType compute : {DType::Float32, DType::BFloat16}) {
    const MicroBatch batch = random_batch(config, kLengths, 4);
    const Parameters p = random_parameters(config, type_of(compute), 12);
    const ChainResult ours = run_chain(config, batch, p, compute, 1.0);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const LayerBuffers& b = ours.layers[static_cast<size_t>(layer)];
      const size_t index = static_cast<size_t>(layer) + 1;
      const SegmentCall call{config, layer, batch, p.weights[index], p.gradients[index], true, 5};
      const Saved project = buffers(saved_of(SegmentKind::Project, config, batch.tokens(), compute));
      const Saved finish = buffers(saved_of(SegmentKind::Finish, config, batch.tokens(), compute));
      project_recompute(call, b.x, project);
      finish_recompute(call, b.x, b.o, finish);
      for (size_t i = 0; i < project.size(); ++i) EXPECT_TRUE(at::equal(project[i], b.project[i])) << i;
      for (size_t i = 0; i < finish.size(); ++i) EXPECT_TRUE(at::equal(finish[i], b.finish[i])) << i;
    }
  }
}

TEST_P(Segments, RunTwiceGiveTheSameBits) {
  const ModelConfig& config = GetParam().config;
  const MicroBatch batch = random_batch(config, kLengths, 4);
  const Parameters a = random_parameters(config, at::kFloat, 12), b = random_parameters(config, at::kFloat, 12);
  const ChainResult first = run_chain(config, batch, a, DType::Float32, 1.0), second = run_chain(config, batch, b, DType::Float32, 1.0);
  EXPECT_TRUE(at::equal(first.losses, second.losses));
  for (size_t s = 0; s < a.gradients.size(); ++s)
    for (size_t r = 0; r < kRoleCount; ++r)
      if (a.gradients[s][r].defined()) { EXPECT_TRUE(at::equal(a.gradients[s][r], b.gradients[s][r])) << s << " " << r; }
}

// Whatever a fresh gradient holds before, it then holds what adding to zeros gives. Also where nothing is trained.
TEST_P(Segments, FreshGradientsAreOverwritten) {
  const ModelConfig& config = GetParam().config;
  for (DType compute : {DType::Float32, DType::BFloat16}) {
    for (const std::vector<int64_t>& lengths : {kLengths, std::vector<int64_t>{}, std::vector<int64_t>{1, 2}}) {
      MicroBatch batch = random_batch(config, lengths, 4);
      if (lengths.size() == 2) batch.targets.fill_(-1);
      const Parameters added = random_parameters(config, type_of(compute), 12), written = random_parameters(config, type_of(compute), 12);
      for (const RoleTensors& gradients : written.gradients)
        for (at::Tensor g : gradients)
          if (g.defined()) g.fill_(std::numeric_limits<double>::quiet_NaN());
      run_chain(config, batch, added, compute, 1.0);
      run_chain(config, batch, written, compute, 1.0, true, 5, true);
      for (size_t s = 0; s < added.gradients.size(); ++s)
        for (size_t r = 0; r < kRoleCount; ++r)
          if (added.gradients[s][r].defined()) { EXPECT_TRUE(at::equal(added.gradients[s][r], written.gradients[s][r])) << s << " " << r; }
    }
  }
}

TEST_P(Segments, EmptyMicroBatchChangesNothing) {
  const ModelConfig& config = GetParam().config;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{}, std::vector<int64_t>{0}}) {
    const MicroBatch batch = random_batch(config, lengths, 4);
    const Parameters p = random_parameters(config, at::kFloat, 12);
    const ChainResult result = run_chain(config, batch, p, DType::Float32, 1.0);
    EXPECT_EQ(result.losses.numel(), 0);
    for (const RoleTensors& gradients : p.gradients)
      for (const at::Tensor& g : gradients)
        if (g.defined()) { EXPECT_EQ(g.abs().sum().item<float>(), 0.0f); }
  }
}

// A sequence's losses do not depend on what is packed beside it, dropout included.
TEST_P(Segments, NeighboursDoNotMatter) {
  const ModelConfig& config = GetParam().config;
  const MicroBatch batch = random_batch(config, {40, 9}, 4, true);
  MicroBatch alone{batch.ids.narrow(0, 40, 9).contiguous(), batch.positions.narrow(0, 40, 9).contiguous(),
                   batch.targets.narrow(0, 40, 9).contiguous(), {0, 9}, {batch.sample_keys[1]}};
  const Parameters p = random_parameters(config, at::kFloat, 12);
  const at::Tensor packed = run_chain(config, batch, p, DType::Float32, 1.0).losses.narrow(0, 40, 9);
  EXPECT_LE(relative_error(run_chain(config, alone, p, DType::Float32, 1.0).losses, packed), 2e-6);
}

// Frozen tensors have no gradient: the others' gradients keep their values.
TEST_P(Segments, FrozenTensorsLeaveTheRestAlone) {
  const ModelConfig& config = GetParam().config;
  const MicroBatch batch = random_batch(config, {20, 3}, 4);
  const Parameters all = random_parameters(config, at::kFloat, 12);
  run_chain(config, batch, all, DType::Float32, 1.0);
  for (size_t parity : {0u, 1u}) {
    Parameters some = random_parameters(config, at::kFloat, 12);
    for (RoleTensors& gradients : some.gradients)
      for (size_t r = parity; r < kRoleCount; r += 2) gradients[r].reset();
    run_chain(config, batch, some, DType::Float32, 1.0);
    for (size_t s = 0; s < all.gradients.size(); ++s)
      for (size_t r = 0; r < kRoleCount; ++r)
        if (some.gradients[s][r].defined()) { EXPECT_TRUE(at::equal(some.gradients[s][r], all.gradients[s][r])) << s << " " << r; }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Segments, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(Head, LossOfUntrainedBatchIsZero) {
  const ModelConfig config = tiny_gpt2();
  MicroBatch batch = random_batch(config, {5, 6}, 1);
  batch.targets.fill_(-1);
  const Parameters p = random_parameters(config, at::kFloat, 12);
  const ChainResult result = run_chain(config, batch, p, DType::Float32, 1.0);
  EXPECT_EQ(result.losses.abs().sum().item<float>(), 0.0f);
  for (const RoleTensors& gradients : p.gradients)
    for (const at::Tensor& g : gradients)
      if (g.defined()) { EXPECT_EQ(g.abs().sum().item<float>(), 0.0f); }
}

TEST(Head, LossAndLogitsAgreeWithTraining) {
  for (DType compute : {DType::Float32, DType::BFloat16}) {
    const ModelConfig config = tiny_llama();
    const MicroBatch batch = random_batch(config, {50, 6}, 1);
    const Parameters p = random_parameters(config, type_of(compute), 12);
    const ChainResult result = run_chain(config, batch, p, compute, 1.0);
    const SegmentCall call{config, -1, batch, p.weights.back(), p.gradients.back(), false, 5};
    at::Tensor losses = at::empty({56}, at::kFloat);
    head_loss(call, result.x_out, losses);
    EXPECT_TRUE(at::equal(losses, result.losses));
    const at::Tensor logits = head_logits(call, result.x_out);
    ASSERT_EQ(logits.scalar_type(), at::kFloat);
    const at::Tensor expected = -at::log_softmax(logits.to(at::kDouble), 1).gather(1, batch.targets.clamp_min(0).unsqueeze(1)).squeeze(1) *
                                batch.targets.ge(0).to(at::kDouble);
    EXPECT_LE(relative_error(losses, expected), 2e-6);
  }
}

// 1000 rows of this vocabulary are two chunks, and a bf16 head three blocks: the sums are those of parts that fit one chunk.
TEST(Head, ChunksAndVocabularyBlocksAddUp) {
  ModelConfig config = tiny_llama();
  config.vocab_size = 20011, config.hidden = 16;
  const MicroBatch batch = random_batch(config, {1000}, 1);
  const at::Tensor x = at::randn({1000, 16}).to(at::kBFloat16);
  const Parameters values = random_parameters(config, at::kBFloat16, 12);
  const auto train = [&](DType compute, const std::vector<int64_t>& cuts, RoleTensors& gradients) {
    RoleTensors weights;
    for (size_t r = 0; r < kRoleCount; ++r) {
      if (!values.weights.back()[r].defined()) continue;
      weights[r] = values.weights.back()[r].to(type_of(compute));
      gradients[r] = at::zeros(weights[r].sizes(), at::kFloat);
    }
    std::vector<at::Tensor> losses, dxs;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t n = cuts[i + 1] - cuts[i];
      MicroBatch part;
      part.targets = batch.targets.narrow(0, cuts[i], n);
      part.starts = {0, n};
      losses.push_back(at::full({n}, NAN));
      dxs.push_back(at::full({n, 16}, NAN, type_of(compute)));
      head_train({config, -1, part, weights, gradients}, x.narrow(0, cuts[i], n).to(type_of(compute)), 0.01, dxs.back(), losses.back());
    }
    return std::pair{at::cat(losses), at::cat(dxs)};
  };
  RoleTensors whole, parts, narrow;
  const auto [losses, dx] = train(DType::Float32, {0, 1000}, whole);
  const auto [part_losses, part_dx] = train(DType::Float32, {0, 300, 301, 1000}, parts);
  const auto [narrow_losses, narrow_dx] = train(DType::BFloat16, {0, 1000}, narrow);
  EXPECT_LE(relative_error(losses, part_losses), 1e-6);
  EXPECT_LE(relative_error(dx, part_dx), 1e-5);
  EXPECT_LE(relative_error(narrow_losses, losses), 1e-2);
  EXPECT_LE(relative_error(narrow_dx, dx), 1e-2);
  for (Role role : {Role::HeadWeight, Role::FinalNormWeight}) {
    const size_t r = static_cast<size_t>(role);
    EXPECT_LE(relative_error(whole[r], parts[r]), 1e-5);
    EXPECT_LE(relative_error(narrow[r], whole[r]), 1e-2);
  }
}

TEST(Embedding, IdOutsideTheTableIsAnError) {
  const ModelConfig config = tiny_gpt2();
  const Parameters p = random_parameters(config, at::kFloat, 12);
  for (int64_t bad : {int64_t{-1}, int64_t{101}}) {
    MicroBatch batch = random_batch(config, {5}, 1);
    batch.ids[3] = bad;
    EXPECT_ANY_THROW(run_chain(config, batch, p, DType::Float32, 1.0)) << bad;
  }
}

}  // namespace
}  // namespace ballast::segments_test
