// Generation: the cache against the full forward, greedy text against transformers, the ways to stop.
#include "ballast/model/generate.h"

#include <gtest/gtest.h>

#include "ballast/base/error.h"
#include "model/chain.h"
#include "model/golden_case.h"

namespace ballast {
namespace {

class Generate : public testing::TestWithParam<std::string> {};

// Feeds pieces of the two sequences through the cache and compares every logit with one full forward.
void compare_with_full_forward(const std::string& name, const std::vector<std::vector<int64_t>>& cuts) {
  const golden::Case golden(name);
  const ModelWeights weights = ModelWeights::from_folder(golden.model, at::kFloat);
  const auto sequences = golden.sequences();
  const MicroBatch whole = chain::pack(sequences);
  const at::Tensor expected = forward_logits(weights, whole, forward_blocks(weights, whole, attend_whole));
  KvCache cache(weights.config(), 3, 24, at::kFloat);
  const std::vector<int64_t> slots = {2, 0};  // any rows of the cache may serve
  std::vector<int64_t> done = {0, 0};
  for (const auto& cut : cuts) {
    std::vector<std::vector<int64_t>> pieces;
    std::vector<int64_t> active;
    for (size_t s = 0; s < 2; ++s) {
      const int64_t end = std::min(done[s] + cut[s], static_cast<int64_t>(sequences[s].size()));
      pieces.emplace_back(sequences[s].begin() + done[s], sequences[s].begin() + end);
      active.push_back(slots[s]);
    }
    MicroBatch batch = chain::pack(pieces);
    for (size_t s = 0; s < 2; ++s)
      batch.positions.narrow(0, batch.starts[s], batch.starts[s + 1] - batch.starts[s]).add_(done[s]);
    const at::Tensor x =
        forward_blocks(weights, batch,
                       [&](const SegmentCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           at::Tensor& o, at::Tensor& lse) { cache.attend(call, active, q, k, v, o, lse); });
    cache.advance(batch, active);
    const at::Tensor logits = forward_logits(weights, batch, x);
    for (size_t s = 0; s < 2; ++s) {
      const int64_t rows = batch.starts[s + 1] - batch.starts[s];
      if (rows == 0) continue;
      EXPECT_LT(golden::difference(logits.narrow(0, batch.starts[s], rows),
                                   expected.narrow(0, whole.starts[s] + done[s], rows)),
                1e-5)
          << name << ", sequence " << s << " from token " << done[s];
      done[s] += rows;
      EXPECT_EQ(cache.length(slots[s]), done[s]);
    }
  }
  EXPECT_EQ(done, (std::vector<int64_t>{21, 12}));
}

TEST_P(Generate, TokenByTokenEqualsTheFullForward) {
  compare_with_full_forward(GetParam(), std::vector<std::vector<int64_t>>(21, {1, 1}));
}

TEST_P(Generate, UnequalPiecesEqualTheFullForward) {
  compare_with_full_forward(GetParam(), {{7, 3}, {1, 5}, {9, 1}, {3, 3}, {1, 0}});
}

TEST_P(Generate, GreedyTextIsThatOfTransformers) {
  const golden::Case golden(GetParam());
  const ModelWeights weights = ModelWeights::from_folder(golden.model, at::kFloat);
  const std::vector<int64_t> all = golden.integers("ids.0"), expected = golden.integers("generated");
  GenerateOptions options;
  options.max_tokens = static_cast<int64_t>(expected.size());
  options.sampling.temperature = 0;
  KvCache cache(weights.config(), 1, cache_capacity(weights.config(), 4, options.max_tokens), at::kFloat);
  std::vector<int64_t> streamed;
  const Generation result = generate(weights, cache, std::span(all).first(4), options, [&](int64_t id) {
    streamed.push_back(id);
    return true;
  });
  EXPECT_EQ(result.ids, expected);
  EXPECT_EQ(streamed, expected);
  EXPECT_EQ(result.reason, StopReason::MaxTokens);
}

INSTANTIATE_TEST_SUITE_P(Families, Generate, testing::ValuesIn(golden::names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

struct Loaded {
  golden::Case golden{"gpt2"};
  ModelWeights weights = ModelWeights::from_folder(golden.model, at::kFloat);
  std::vector<int64_t> prompt{5, 6, 7};
};

TEST(GenerateStops, AtTheLastPositionAndSaysSo) {
  const Loaded loaded;
  GenerateOptions options;
  options.max_tokens = 1000;
  KvCache cache(loaded.weights.config(), 1, cache_capacity(loaded.weights.config(), 3, options.max_tokens), at::kFloat);
  EXPECT_EQ(cache.capacity(), 24);
  const Generation result = generate(loaded.weights, cache, loaded.prompt, options);
  EXPECT_EQ(result.reason, StopReason::MaxPositions);
  EXPECT_EQ(result.ids.size(), 22u);  // 24 positions hold the prompt and 21 tokens; the last one is not read any more
}

TEST(GenerateStops, AtEndOfTextWithoutIt) {
  const Loaded loaded;
  GenerateOptions options;
  options.max_tokens = 10;
  options.sampling.temperature = 0;
  KvCache cache(loaded.weights.config(), 1, 24, at::kFloat);
  const std::vector<int64_t> free = generate(loaded.weights, cache, loaded.prompt, options).ids;
  const int64_t end = free[3];
  options.end_of_text = {end};
  const Generation result = generate(loaded.weights, cache, loaded.prompt, options);
  EXPECT_EQ(result.reason, StopReason::EndOfText);
  const auto first = std::find(free.begin(), free.end(), end);
  EXPECT_EQ(result.ids, std::vector<int64_t>(free.begin(), first));
}

TEST(GenerateStops, WhenTheCallerSaysSo) {
  const Loaded loaded;
  KvCache cache(loaded.weights.config(), 1, 24, at::kFloat);
  int64_t seen = 0;
  const Generation result = generate(loaded.weights, cache, loaded.prompt, {}, [&](int64_t) { return ++seen < 4; });
  EXPECT_EQ(result.ids.size(), 4u);
  EXPECT_EQ(result.reason, StopReason::Callback);
}

TEST(GenerateBatch, EachPromptAsIfAloneAndSeedsRepeat) {
  const Loaded loaded;
  GenerateOptions options;
  options.max_tokens = 9;
  options.seed = 42;
  options.sampling = {0.8, 20, 0.9};
  const std::vector<std::vector<int64_t>> prompts = {{5, 6, 7}, {9}, {1, 2, 3, 4, 5, 6, 7, 8}};
  KvCache cache(loaded.weights.config(), 3, 24, at::kFloat);
  const auto together = generate_batch(loaded.weights, cache, prompts, options);
  const auto again = generate_batch(loaded.weights, cache, prompts, options);
  for (size_t s = 0; s < 3; ++s) EXPECT_EQ(together[s].ids, again[s].ids);
  EXPECT_EQ(generate(loaded.weights, cache, prompts[0], options).ids, together[0].ids);
  options.seed = 43;
  EXPECT_NE(generate(loaded.weights, cache, prompts[0], options).ids, together[0].ids);
}

TEST(GenerateRefuses, BadPromptsAndOptions) {
  const Loaded loaded;
  KvCache cache(loaded.weights.config(), 1, 24, at::kFloat);
  const auto message = [&](const std::vector<int64_t>& prompt, const GenerateOptions& options) -> std::string {
    try {
      generate(loaded.weights, cache, prompt, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_NE(message({}, {}).find("the prompt is empty"), std::string::npos);
  EXPECT_NE(message({97}, {}).find("id 97"), std::string::npos);
  EXPECT_NE(message({-1}, {}).find("id -1"), std::string::npos);
  EXPECT_NE(message(std::vector<int64_t>(25, 1), {}).find("25 tokens"), std::string::npos);
  EXPECT_NE(message({1}, {.max_tokens = -1}).find("negative"), std::string::npos);
  EXPECT_NE(message({1}, {.sampling = {.temperature = -1}}).find("temperature"), std::string::npos);
  EXPECT_NE(message({1}, {.sampling = {.top_k = -1}}).find("top-k"), std::string::npos);
  EXPECT_NE(message({1}, {.sampling = {.top_p = 0}}).find("top-p"), std::string::npos);
  EXPECT_THROW(KvCache(loaded.weights.config(), 1, 25, at::kFloat), Error);
}

}  // namespace
}  // namespace ballast
