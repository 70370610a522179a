// ballast bench partition: placements beside each other on the same ranks - speed and bytes in turns; with --convergence their losses on real text
// over several seeds; with --errors one step's gradients and weights beside an exact step's.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/train/machine.h"
#include "ballast/train/process.h"
#include "ballast/train/progress.h"
#include "ballast/train/step_planner.h"
#include "ballast/train/verb_bench.h"

namespace ballast {

namespace {

using Json = nlohmann::json;

struct PartitionBench {
  TrainBench train;
  std::vector<std::string> placements;
  int64_t turns = 3, seeds = 3;
};

PartitionBench parse_partition_bench(const BenchOptions& options) {
  PartitionBench bench;
  BenchOptions others = options;
  std::erase_if(others.overrides, [&](const std::string& one) {
    if (!one.starts_with("placements=")) return false;
    bench.placements = split_placements(one.substr(one.find('=') + 1));
    return true;
  });
  bench.train = parse_train_bench(others, {{"turns", &bench.turns}, {"seeds", &bench.seeds}});
  if (bench.placements.empty()) {
    throw Error(ErrorKind::Usage, "no placement is named").at("placements").expected("a list, as in 'placements=zero3,zeropp(node),{weights: node, gradients: node, optimizer: world}'");
  }
  return bench;
}

std::vector<Recipe> recipes_of(const PartitionBench& bench, const ModelConfig& model, const Topology& topology) {
  std::vector<Recipe> recipes;
  for (const std::string& text : bench.placements) {
    recipes.push_back(make_recipe(bench.train.config, model, topology));
    set_placement(recipes.back(), text);
  }
  return recipes;
}

// What every rank would refuse is said once, before they start.
void check_placements(const PartitionBench& bench, const Topology& topology) {
  const RunConfig& config = bench.train.config;
  recipes_of(bench, open_model(config, open_tokenizer(config).get()).config, topology);
}

// The exact step that lossy ones are held against: fp32 everywhere.
Recipe exact_recipe(const Recipe& like) {
  Recipe exact = like;
  exact.compute = DType::Float32;
  exact.placement = parse_placement_preset("zero3", like.topology);
  return exact;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (double value : values) sum += (value - middle) * (value - middle);
  return values.size() < 2 ? 0 : std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// --- speed ---------------------------------------------------------------------------------------------------------------

int compare_speed(const PartitionBench& bench, bool json) {
  const RunConfig& config = bench.train.config;
  require(config, {Needs::Model});
  return on_ranks(config, bench.train.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const ModelSource model = open_model(bench.train.config, nullptr);
    const std::vector<Recipe> recipes = recipes_of(bench, model.config, topology);
    std::vector<MeasuredSteps> all(recipes.size());
    std::vector<std::vector<double>> by_turn(recipes.size());
    for (int64_t turn = 0; turn < bench.turns; ++turn) {
      for (size_t r = 0; r < recipes.size(); ++r) {
        MeasuredSteps measured = measure_steps(bench.train, recipes[r], model, communicator, threads);
        by_turn[r].push_back(median(measured.times));
        measured.times.insert(measured.times.end(), all[r].times.begin(), all[r].times.end());
        all[r] = std::move(measured);
        if (communicator.rank() == 0) std::cerr << fmt::format("turn {} of {}: {:<32} {:.3f} s per step\n", turn + 1, bench.turns, recipes[r].placement.name, by_turn[r].back());
      }
    }
    if (communicator.rank() != 0) return 0;
    Json report{{"name", "partition"}, {"ranks", communicator.size()}, {"topology", topology.text()}, {"model", model.text}, {"precision", bench.train.config.train.precision},
                {"batch", bench.train.batch}, {"seq", bench.train.sequence}, {"micro_batches", bench.train.micro_batches}, {"threads", threads}, {"turns", bench.turns},
                {"transport", communicator.name()}, {"cpu_flags", cpu_flags()}};
    for (size_t r = 0; r < recipes.size(); ++r) {
      const auto [least, most] = std::minmax_element(by_turn[r].begin(), by_turn[r].end());
      const double step_s = median(all[r].times);
      Json one{{"placement", recipes[r].placement.name}, {"step_s", step_s}, {"tokens_per_s", all[r].tokens / step_s}, {"turn_medians_s", by_turn[r]},
               {"spread", (*most - *least) / step_s}, {"exposed_communication_share", all[r].exposed_share}, {"loss", all[r].losses.back()}};
      for (int l = 0; l < topology.level_count(); ++l) one["bytes"][topology.level(l).name] = all[r].bytes[static_cast<size_t>(l)];
      report["placements"].push_back(std::move(one));
    }
    if (json) {
      std::cout << report.dump(2) << "\n";
      return 0;
    }
    std::cout << fmt::format("{:<34} {:>10} {:>10} {:>8} {:>10}", "placement", "s/step", "tokens/s", "spread", "exposed");
    for (const Level& level : topology.levels()) std::cout << fmt::format(" {:>12}", level.name);
    std::cout << "\n";
    for (const Json& one : report["placements"]) {
      std::cout << fmt::format("{:<34} {:>10.3f} {:>10.1f} {:>7.0f}% {:>9.0f}%", one["placement"].get<std::string>(), one["step_s"].get<double>(), one["tokens_per_s"].get<double>(),
                               100 * one["spread"].get<double>(), 100 * one["exposed_communication_share"].get<double>());
      for (const Level& level : topology.levels()) std::cout << fmt::format(" {:>12}", format_bytes(one["bytes"][level.name].get<int64_t>()));
      std::cout << "\n";
    }
    return 0;
  }, [&](const Topology& topology) { check_placements(bench, topology); });
}

// --- losses on real text ---------------------------------------------------------------------------------------------------

struct TextRun {
  const RunConfig& config;
  const ModelSource& model;
  const DataSet& train;
  const DataSet* eval;
  LayoutLimits limits;
  int64_t steps;
};

struct RunLosses {
  double train = 0;   // mean of the last tenth of the steps
  double eval = 0;    // after the last step; NaN without data.eval
};

RunLosses train_once(const TextRun& text, const Recipe& recipe, uint64_t seed, Communicator& communicator, int threads, ProgressBar* bar) {
  Engine engine(recipe, communicator, EngineOptions{.seed = seed, .threads = threads, .optimizer = text.config.optimizer.spec});
  engine.set_weights(initial_weights(text.model, seed));
  StepPlanner planner(recipe, communicator.rank(), text.train, Selector(text.train, seed, text.config.batch.tokens), text.config.data.layout, text.limits, 1, text.steps);
  LrSchedule schedule = text.config.optimizer.schedule;
  schedule.steps = text.steps;
  RunLosses losses;
  const int64_t last = std::max<int64_t>(1, text.steps / 10);
  for (int64_t n = 1; n <= text.steps; ++n) {
    const PlannedStep step = planner.next();
    StepSettings settings;
    settings.step = n;
    settings.lr = learning_rate(schedule, n);
    settings.clip = text.config.optimizer.clip;
    settings.trained_targets = step.trained_targets;
    const StepResult result = engine.train(step.graph, step.batches, settings);
    if (n > text.steps - last) losses.train += result.loss / static_cast<double>(last);
    if (bar != nullptr) bar->advance(1);
  }
  losses.eval = std::nan("");
  if (text.eval == nullptr) return losses;
  ExactSum sum;
  int64_t targets = 0, next = 0;
  while (true) {
    const Selection selection = select_in_order(*text.eval, text.config.batch.tokens, next);
    if (selection.empty()) break;
    const PlannedEvaluation planned = plan_evaluation(recipe, communicator.rank(), *text.eval, selection, text.config.data.layout, text.limits);
    const Engine::Evaluation evaluation = engine.evaluate(planned.graph, planned.batches);
    sum.merge(evaluation.loss);
    targets += evaluation.targets;
  }
  losses.eval = sum.value() / static_cast<double>(std::max<int64_t>(1, targets));
  return losses;
}

int compare_losses(const PartitionBench& bench, bool json) {
  const RunConfig& config = bench.train.config;
  require(config, {Needs::Model, Needs::TrainData});
  return on_ranks(config, bench.train.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const auto tokenizer = need_tokenizer(config);
    const ModelSource model = open_model(config, tokenizer.get());
    const auto train = open_data_of(config, DataUse::Train, *tokenizer, model.config);
    const auto eval = config.data.eval.empty() ? nullptr : open_data_of(config, DataUse::Eval, *tokenizer, model.config);
    const int64_t steps = bench.train.steps;
    const TextRun text{config, model, *train, eval.get(), layout_limits(config, model.config, topology), steps};
    std::vector<Recipe> recipes = recipes_of(bench, model.config, topology);
    recipes.insert(recipes.begin(), exact_recipe(recipes.front()));
    recipes.front().placement.name = "exact (fp32, zero3)";
    std::unique_ptr<ProgressBar> bar;
    if (communicator.rank() == 0) bar = std::make_unique<ProgressBar>("convergence", static_cast<int64_t>(recipes.size()) * bench.seeds * steps, ProgressUnit::Items);
    std::vector<std::vector<RunLosses>> all(recipes.size());
    for (int64_t seed = 0; seed < bench.seeds; ++seed) {
      for (size_t r = 0; r < recipes.size(); ++r) {
        all[r].push_back(train_once(text, recipes[r], config.run.seed + static_cast<uint64_t>(seed), communicator, threads, bar.get()));
      }
    }
    if (bar != nullptr) bar->finish();
    if (communicator.rank() != 0) return 0;
    Json report{{"name", "partition --convergence"}, {"ranks", communicator.size()}, {"topology", topology.text()}, {"model", model.text}, {"steps", steps}, {"seeds", bench.seeds},
                {"precision", config.train.precision}, {"batch_tokens", config.batch.tokens}};
    for (size_t r = 0; r < recipes.size(); ++r) {
      const auto gaps = [&](double RunLosses::*loss) {
        std::vector<double> values;
        for (size_t s = 0; s < all[r].size(); ++s) values.push_back(all[r][s].*loss / (all[0][s].*loss) - 1);
        return values;
      };
      const auto losses = [&](double RunLosses::*loss) {
        std::vector<double> values;
        for (const RunLosses& one : all[r]) values.push_back(one.*loss);
        return values;
      };
      Json one{{"placement", recipes[r].placement.name}, {"train_losses", losses(&RunLosses::train)}, {"train_gap_mean", mean(gaps(&RunLosses::train))},
               {"train_gap_deviation", deviation(gaps(&RunLosses::train))}};
      if (eval != nullptr) {
        one["eval_losses"] = losses(&RunLosses::eval);
        one["eval_gap_mean"] = mean(gaps(&RunLosses::eval));
        one["eval_gap_deviation"] = deviation(gaps(&RunLosses::eval));
      }
      report["placements"].push_back(std::move(one));
    }
    if (json) {
      std::cout << report.dump(2) << "\n";
      return 0;
    }
    const char* which = eval == nullptr ? "train" : "eval";
    std::cout << fmt::format("{} loss after {} steps, {} seed(s); gap to the exact run of the same seed, mean and standard deviation\n", which, steps, bench.seeds);
    for (const Json& one : report["placements"]) {
      std::vector<std::string> losses;
      for (const Json& loss : one[std::string(which) + "_losses"]) losses.push_back(fmt::format("{:.4f}", loss.get<double>()));
      std::cout << fmt::format("{:<40} {:>8.3f} % +- {:.3f} %   {}\n", one["placement"].get<std::string>(), 100 * one[std::string(which) + "_gap_mean"].get<double>(),
                               100 * one[std::string(which) + "_gap_deviation"].get<double>(), fmt::join(losses, " "));
    }
    return 0;
  }, [&](const Topology& topology) { check_placements(bench, topology); });
}

// --- one step's errors -----------------------------------------------------------------------------------------------------

// All weights in full, group by group, on rank 0.
std::vector<at::Tensor> collect_all(Engine& engine) {
  std::vector<at::Tensor> flats;
  const StepGraph graph = build_step(engine.recipe(), engine.rank(), {}, Work::Collect);
  engine.collect(graph, [&](const ParameterGroup& group, const at::Tensor& flat) {
    if (engine.rank() == 0) flats.push_back(flat.narrow(0, 0, group.numel).to(at::kDouble, false, true));
  });
  return flats;
}

// What one step changed: with plain SGD at rate 1 minus the gradient, with the configured optimizer the update.
std::vector<at::Tensor> change_of(const PartitionBench& bench, const ModelSource& model, Recipe recipe, const OptimizerSpec& optimizer, double lr, Communicator& communicator,
                                  int threads) {
  recipe.optimizer_states.clear();
  for (const OptimizerState& state : optimizer_state_specs(optimizer)) recipe.optimizer_states.push_back(state.name);
  Engine engine(recipe, communicator, EngineOptions{.seed = bench.train.config.run.seed, .threads = threads, .optimizer = optimizer});
  engine.set_weights(initial_weights(model, bench.train.config.run.seed));
  std::vector<at::Tensor> before = collect_all(engine);
  train_random_step(bench.train, engine, model, communicator, lr);
  const std::vector<at::Tensor> after = collect_all(engine);
  for (size_t g = 0; g < before.size(); ++g) before[g] = after[g] - before[g];
  return before;
}

double relative_error(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
  double difference = 0, size = 0;
  for (size_t g = 0; g < want.size(); ++g) {
    difference += (got[g] - want[g]).square().sum().item<double>();
    size += want[g].square().sum().item<double>();
  }
  return size == 0 ? 0 : std::sqrt(difference / size);
}

int compare_errors(const PartitionBench& bench, bool json) {
  const RunConfig& config = bench.train.config;
  require(config, {Needs::Model});
  return on_ranks(config, bench.train.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const ModelSource model = open_model(bench.train.config, nullptr);
    const std::vector<Recipe> recipes = recipes_of(bench, model.config, topology);
    const OptimizerSpec plain{.name = "sgd", .momentum = 0};
    const OptimizerSpec& configured = bench.train.config.optimizer.spec;
    const double lr = bench.train.config.optimizer.schedule.lr;
    const Recipe exact = exact_recipe(recipes.front());
    const auto gradient = change_of(bench, model, exact, plain, 1.0, communicator, threads);
    const auto update = change_of(bench, model, exact, configured, lr, communicator, threads);
    Json report{{"name", "partition --errors"}, {"ranks", communicator.size()}, {"topology", topology.text()}, {"model", model.text}, {"precision", bench.train.config.train.precision}};
    for (const Recipe& recipe : recipes) {
      const auto its_gradient = change_of(bench, model, recipe, plain, 1.0, communicator, threads);
      const auto its_update = change_of(bench, model, recipe, configured, lr, communicator, threads);
      if (communicator.rank() != 0) continue;
      report["placements"].push_back(Json{{"placement", recipe.placement.name}, {"gradient_error", relative_error(its_gradient, gradient)}, {"update_error", relative_error(its_update, update)}});
    }
    if (communicator.rank() != 0) return 0;
    if (json) {
      std::cout << report.dump(2) << "\n";
      return 0;
    }
    std::cout << fmt::format("relative error (2-norm over all weights) of the first step, {}, beside an exact fp32 step\n{:<40} {:>12} {:>12}\n", bench.train.config.train.precision,
                             "placement", "gradient", configured.name + " update");
    for (const Json& one : report["placements"]) {
      std::cout << fmt::format("{:<40} {:>12.2e} {:>12.2e}\n", one["placement"].get<std::string>(), one["gradient_error"].get<double>(), one["update_error"].get<double>());
    }
    return 0;
  }, [&](const Topology& topology) { check_placements(bench, topology); });
}

}  // namespace

int bench_partition(const BenchOptions& options) {
  if (options.convergence && options.errors) throw Error(ErrorKind::Usage, "--convergence and --errors exclude each other").at("bench partition");
  const PartitionBench bench = parse_partition_bench(options);
  if (options.convergence) return compare_losses(bench, options.json);
  if (options.errors) return compare_errors(bench, options.json);
  return compare_speed(bench, options.json);
}

}  // namespace ballast
