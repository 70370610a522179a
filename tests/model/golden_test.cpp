// Logits, loss and gradients of every family against transformers in fp32.
#include <gtest/gtest.h>

#include "model/chain.h"
#include "model/golden_case.h"

namespace ballast {
namespace {

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, LogitsEqualThoseOfTransformers) {
  const golden::Case golden(GetParam());
  const ModelWeights weights = ModelWeights::from_folder(golden.model, at::kFloat);
  const MicroBatch batch = chain::pack(golden.sequences());
  const at::Tensor logits = forward_logits(weights, batch, forward_blocks(weights, batch, attend_whole));
  for (int64_t s = 0; s < 2; ++s) {
    const int64_t begin = batch.starts[static_cast<size_t>(s)],
                  length = batch.starts[static_cast<size_t>(s) + 1] - begin;
    EXPECT_LT(golden::difference(logits.narrow(0, begin, length), golden.floats("logits." + std::to_string(s))), 1e-4)
        << "sequence " << s;
  }
}

TEST_P(Golden, LossAndGradientsEqualThoseOfTransformers) {
  const golden::Case golden(GetParam());
  const ModelWeights weights = ModelWeights::from_folder(golden.model, at::kFloat);
  const MicroBatch batch = chain::pack(golden.sequences());
  const double trained = static_cast<double>(batch.tokens() - 2);
  const chain::Result result = chain::run(weights, batch, 1.0 / trained);
  const double expected = golden.floats("loss").item<double>();
  EXPECT_NEAR(result.token_losses.sum().item<double>() / trained, expected, 1e-5 * expected);
  EXPECT_NEAR(evaluate_batch(weights, batch).sum().item<double>() / trained, expected, 1e-5 * expected);
  int64_t compared = 0;
  for (size_t g = 0; g < weights.shape().groups.size(); ++g) {
    for (const ParameterTensor& tensor : weights.shape().groups[g].tensors) {
      const at::Tensor gradient = result.gradients[g].narrow(0, tensor.offset, tensor.numel()).view(tensor.shape);
      EXPECT_LT(golden::difference(gradient, golden.floats("grad." + tensor.name)), 1e-4) << tensor.name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 12);
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, testing::ValuesIn(golden::names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace ballast
