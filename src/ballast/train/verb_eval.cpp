// ballast eval: the loss of a configuration's, a run's or a model folder's weights on data.eval.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/train/commands.h"
#include "ballast/train/process.h"
#include "ballast/train/progress.h"
#include "ballast/train/step_planner.h"
#include "ballast/train/weights_source.h"

namespace ballast {

namespace {

// What `eval` was pointed at: a configuration, and the folder of the weights where it is not the configuration's own model.
struct Target {
  RunConfig config;
  std::filesystem::path weights;
};

Target open_target(const ConfigSource& source) {
  const std::filesystem::path path = source.path;
  if (!std::filesystem::is_directory(path)) return {load_run_config(path, source.overrides), {}};
  const WeightsSource weights = open_weights(path, "best", source.overrides);
  return {weights.config ? *weights.config : parse_run_config("", "command line", source.overrides), weights.folder};
}

}  // namespace

int run_eval(const EvalOptions& options) {
  const Target target = open_target(options.config);
  const RunConfig& config = target.config;
  require(config, {Needs::EvalData});
  return on_ranks(config, options.config.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const auto tokenizer = target.weights.empty() || !config.data.tokenizer.empty() ? open_tokenizer(config) : load_tokenizer(target.weights);
    if (tokenizer == nullptr) throw Error(ErrorKind::Usage, "no tokenizer is given").at("data.tokenizer").cure("set data.tokenizer");
    const ModelSource model = target.weights.empty() ? open_model(config, tokenizer.get()) : open_model_folder(target.weights);
    const Recipe recipe = make_recipe(config, model.config, topology);
    const auto data = open_data_of(config, DataUse::Eval, *tokenizer, model.config);
    Engine engine(recipe, communicator, EngineOptions{config.run.seed, threads, config.optimizer.spec});
    engine.set_weights(initial_weights(model, config.run.seed));
    const LayoutLimits limits = layout_limits(config, model.config, topology);
    const auto began = std::chrono::steady_clock::now();
    ExactSum loss;
    int64_t targets = 0, tokens = 0, next = 0;
    std::unique_ptr<ProgressBar> bar;
    if (communicator.rank() == 0) bar = std::make_unique<ProgressBar>("evaluate", data->tokens_per_epoch(), ProgressUnit::Tokens);
    while (true) {
      const Selection selection = select_in_order(*data, limits.micro_tokens * limits.ranks, next);
      if (selection.empty()) break;
      const PlannedEvaluation planned = plan_evaluation(recipe, communicator.rank(), *data, selection, config.data.layout, limits);
      const Engine::Evaluation evaluation = engine.evaluate(planned.graph, planned.batches);
      loss.merge(evaluation.loss);
      targets += evaluation.targets;
      tokens += planned.tokens;
      if (bar != nullptr) bar->advance(planned.tokens);
    }
    if (bar != nullptr) bar->finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (communicator.rank() != 0) return 0;
    if (targets == 0) throw Error(ErrorKind::Data, "the evaluation data have no trained target").at("data.eval");
    const double mean = loss.value() / static_cast<double>(targets);
    if (options.json) {
      std::cout << nlohmann::json{{"loss", mean}, {"tokens", targets}, {"perplexity", std::exp(mean)}, {"trained_tokens", targets}, {"input_tokens", tokens}, {"tokens_per_s", static_cast<double>(tokens) / seconds}, {"samples", data->counts().samples}}.dump(2) << "\n";
    } else {
      std::cout << fmt::format("loss {:.6f} nats per token, perplexity {:.4f}, {} tokens\n", mean, std::exp(mean), targets);
    }
    return 0;
  });
}

}  // namespace ballast
