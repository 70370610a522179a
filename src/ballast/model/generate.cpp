#include "ballast/model/generate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/model/forward.h"

namespace ballast {

namespace {

// New tokens of the sequences in `slots`, continuing what the cache holds of them.
MicroBatch batch_of(const KvCache& cache, std::span<const int64_t> slots,
                    const std::vector<std::vector<int64_t>>& tokens) {
  MicroBatch batch;
  batch.starts = {0};
  std::vector<int64_t> ids, positions;
  for (const int64_t slot : slots) {
    for (const int64_t id : tokens[static_cast<size_t>(slot)]) {
      positions.push_back(cache.length(slot) + static_cast<int64_t>(ids.size()) - batch.starts.back());
      ids.push_back(id);
    }
    batch.starts.push_back(static_cast<int64_t>(ids.size()));
    batch.sample_keys.push_back(static_cast<uint64_t>(slot));
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.targets = at::full({batch.tokens()}, -1, at::kLong);
  return batch;
}

void check_prompt(const ModelConfig& config, const KvCache& cache, std::span<const int64_t> prompt) {
  if (prompt.empty())
    throw Error(ErrorKind::Usage, "the prompt is empty")
        .at("prompt")
        .cure("give some text, or the tokenizer's begin-of-text");
  if (static_cast<int64_t>(prompt.size()) > cache.capacity())
    throw Error(ErrorKind::Usage, "the prompt is longer than the model can read")
        .at("prompt")
        .found(fmt::format("{} tokens", prompt.size()))
        .expected(fmt::format("at most {} (the model has {} positions)", cache.capacity(), config.max_positions))
        .cure("shorten the prompt");
  for (const int64_t id : prompt)
    if (id < 0 || id >= config.vocab_size)
      throw Error(ErrorKind::Usage, "a token of the prompt is outside the model's vocabulary")
          .at("prompt")
          .found(fmt::format("id {}", id))
          .expected(fmt::format("ids below {}", config.vocab_size))
          .cure("use the tokenizer that the model was trained with");
}

}  // namespace

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::EndOfText:
      return "end of text";
    case StopReason::MaxTokens:
      return "as many tokens as asked for";
    case StopReason::MaxPositions:
      return "the model has no further positions";
    case StopReason::Callback:
      return "stopped by the caller";
  }
  return "?";
}

int64_t cache_capacity(const ModelConfig& config, int64_t longest_prompt, int64_t max_tokens) {
  return std::min(config.max_positions,
                  std::max<int64_t>(1, longest_prompt) + std::min(max_tokens, config.max_positions));
}

std::vector<Generation> generate_batch(const ModelWeights& weights, KvCache& cache,
                                       const std::vector<std::vector<int64_t>>& prompts, const GenerateOptions& options,
                                       const std::function<bool(int64_t, int64_t)>& on_token) {
  const ModelConfig& config = weights.config();
  check_sampling(options.sampling);
  if (options.max_tokens < 0)
    throw Error(ErrorKind::Usage, "the number of tokens to generate is negative")
        .at("tokens")
        .found(fmt::format("{}", options.max_tokens));
  BALLAST_CHECK(static_cast<int64_t>(prompts.size()) <= cache.sequences(), "{} prompts, {} cached sequences",
                prompts.size(), cache.sequences());
  for (const auto& prompt : prompts) check_prompt(config, cache, prompt);

  std::vector<Generation> results(prompts.size());
  if (options.max_tokens == 0) return results;
  cache.clear();
  std::vector<std::vector<int64_t>> next = prompts;  // what the next pass reads
  std::vector<int64_t> active;
  for (size_t s = 0; s < prompts.size(); ++s) active.push_back(static_cast<int64_t>(s));
  while (!active.empty()) {
    const MicroBatch batch = batch_of(cache, active, next);
    const at::Tensor x =
        forward_blocks(weights, batch,
                       [&](const SegmentCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           at::Tensor& o, at::Tensor& lse) { cache.attend(call, active, q, k, v, o, lse); });
    cache.advance(batch, active);
    std::vector<int64_t> last;
    for (size_t s = 1; s < batch.starts.size(); ++s) last.push_back(batch.starts[s] - 1);
    const bool all = static_cast<int64_t>(last.size()) == batch.tokens();
    const at::Tensor logits = forward_logits(weights, batch, all ? x : x.index_select(0, at::tensor(last, at::kLong)));

    std::vector<int64_t> going;
    for (size_t row = 0; row < active.size(); ++row) {
      const int64_t sequence = active[row];
      const std::span<const float> choices(logits.data_ptr<float>() + static_cast<int64_t>(row) * config.vocab_size,
                                           static_cast<size_t>(config.vocab_size));
      const int64_t id = choose_token(
          choices, options.sampling, uniform_at(options.seed, static_cast<uint64_t>(sequence), cache.length(sequence)));
      Generation& result = results[static_cast<size_t>(sequence)];
      if (std::find(options.end_of_text.begin(), options.end_of_text.end(), id) != options.end_of_text.end()) {
        result.reason = StopReason::EndOfText;
        continue;
      }
      result.ids.push_back(id);
      if (on_token && !on_token(sequence, id)) {
        result.reason = StopReason::Callback;
      } else if (static_cast<int64_t>(result.ids.size()) == options.max_tokens) {
        result.reason = StopReason::MaxTokens;
      } else if (cache.length(sequence) == cache.capacity()) {
        result.reason = StopReason::MaxPositions;
      } else {
        next[static_cast<size_t>(sequence)] = {id};
        going.push_back(sequence);
      }
    }
    active = std::move(going);
  }
  return results;
}

Generation generate(const ModelWeights& weights, KvCache& cache, std::span<const int64_t> prompt,
                    const GenerateOptions& options, const std::function<bool(int64_t)>& on_token) {
  std::function<bool(int64_t, int64_t)> forwarded;
  if (on_token) forwarded = [&](int64_t, int64_t id) { return on_token(id); };
  return generate_batch(weights, cache, {std::vector<int64_t>(prompt.begin(), prompt.end())}, options, forwarded)
      .front();
}

}  // namespace ballast
