// ballast plan, ballast validate, ballast data prepare: everything that is known before running.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/log.h"
#include "ballast/base/units.h"
#include "ballast/graph/estimate.h"
#include "ballast/layout/svg.h"
#include "ballast/train/banner.h"
#include "ballast/train/commands.h"
#include "ballast/train/layout_text.h"
#include "ballast/train/machine.h"
#include "ballast/train/setup.h"

namespace ballast {

namespace {

// The layout to plan with: of a real step, or full micro-batches.
Layout planned_layout(const PlanOptions& options, const RunConfig& config, const ModelConfig& model, const Tokenizer* tokenizer, LayoutLimits limits) {
  if (!options.step) return assumed_layout_of(config, model, limits);
  if (*options.step < 1) throw Error(ErrorKind::Usage, "steps count from 1").at("--step").found(std::to_string(*options.step)).expected("1 or more");
  require(config, {Needs::TrainData});
  if (tokenizer == nullptr) throw Error(ErrorKind::Usage, "--step needs the data, and that a tokenizer").at("data.tokenizer").cure("set data.tokenizer");
  const auto data = open_data_of(config, DataUse::Train, *tokenizer, model);
  Selector selector(*data, config.run.seed, config.batch.tokens);
  Selection selection;
  for (int64_t step = 0; step < *options.step; ++step) selection = selector.next();
  limits.options.epoch = *options.step;
  return make_layout(config.data.layout, selection, limits);
}

nlohmann::json to_json(const PlanSummary& summary, const Recipe& recipe, const LayoutReport& layout) {
  nlohmann::json json;
  json["ranks"] = summary.ranks;
  json["placement"] = recipe.placement.name;
  json["parameters"] = recipe.model.parameters();
  json["micro_batches"] = summary.micro_batches;
  json["levels"] = nlohmann::json::array();
  for (const auto& level : summary.levels) json["levels"].push_back({{"name", level.name}, {"bytes_per_step", level.bytes_per_step}, {"layout_bytes", level.layout_bytes}});
  json["movements"] = nlohmann::json::array();
  for (const auto& one : summary.movements) json["movements"].push_back({{"movement", one.movement}, {"level", one.level}, {"bytes_per_step", one.bytes_per_step}});
  int64_t layout_bytes = 0;
  for (const auto& level : summary.levels) layout_bytes += level.layout_bytes;
  json["layout_bytes"] = layout_bytes;
  json["memory"] = nlohmann::json::array();
  for (const auto& state : summary.memory) json["memory"].push_back({{"state", state.state}, {"tier", state.tier}, {"bytes_per_rank", state.bytes_per_rank}});
  json["bytes_per_rank"] = summary.bytes_per_rank;
  json["operations"] = summary.operations;
  json["flops_per_step"] = summary.flops_per_step;
  json["layout"] = {{"name", layout.name}, {"tokens", layout.tokens}, {"slots", layout.slots}, {"imbalance", layout.cost_imbalance}, {"token_imbalance", layout.token_imbalance}};
  return json;
}

void print_plan(const PlanSummary& summary, const Recipe& recipe, const Layout& layout, const LayoutReport& report, const std::string& whose) {
  std::cout << fmt::format("ranks       {}  {}\n", summary.ranks, recipe.topology.text());
  std::cout << fmt::format("parameters  {:.1f} M, {:.1f} M trained, in {} groups\n", static_cast<double>(recipe.model.parameters()) / 1e6,
                           static_cast<double>(recipe.model.trainable_parameters()) / 1e6, recipe.model.groups.size());
  for (const std::string& line : banner_lines(summary, recipe, layout, whose)) std::cout << line << "\n";
  std::cout << fmt::format("            {} tokens in {} slots, imbalance of cost {:.3f}, of tokens {:.3f}\n", report.tokens, report.slots, report.cost_imbalance, report.token_imbalance);
  std::cout << "\nmemory per rank (maximum over ranks)\n";
  for (const auto& state : summary.memory) std::cout << fmt::format("  {:<12} {:<7} {:>14}\n", state.state, state.tier, format_bytes(state.bytes_per_rank));
  std::cout << fmt::format("  {:<12} {:<7} {:>14}\n", "sum", "", format_bytes(summary.bytes_per_rank));
  std::cout << "\npayload bytes per step (sum over ranks)\n";
  for (const auto& level : summary.levels) {
    std::cout << fmt::format("  {:<20} {:>14}  {}\n", level.name, format_bytes(level.bytes_per_step), level.bytes_per_step);
    for (const auto& one : summary.movements) {
      if (one.level == level.name) std::cout << fmt::format("  {:<20} {:>14}  {}\n", "  " + one.movement, format_bytes(one.bytes_per_step), one.bytes_per_step);
    }
    if (level.layout_bytes > 0) std::cout << fmt::format("  {:<20} {:>14}  {}\n", "  rings and moves", format_bytes(level.layout_bytes), level.layout_bytes);
  }
  std::cout << "\noperations of one rank\n";
  for (const auto& [what, count] : summary.operations) std::cout << fmt::format("  {:<20} {:>6}\n", what, count);
}

struct Compared {
  Recipe recipe;
  PlanSummary summary;
};

// Placements side by side: memory, bytes, the share of communication that links and the measured GEMM rate suggest, and the largest model whose
// states fit the limit, on these ranks and on more of the outermost units.
void compare(const std::vector<Compared>& rows, const LayoutReport& layout, int64_t limit, const PlanOptions& options) {
  const Topology& topology = rows.front().recipe.topology;
  const double flops = options.flops ? *options.flops : measured_gemm_peak(*make_single(), rows.front().recipe.compute, 1);
  const std::vector<std::pair<std::string, double>> growths{{"x1", 1}, {"x4", 4}, {"x16", 16}, {"limit", std::numeric_limits<double>::infinity()}};
  nlohmann::json json = to_json(rows.front().summary, rows.front().recipe, layout);
  json["limit_bytes_per_rank"] = limit;
  json["flops_per_rank"] = flops;
  std::vector<std::vector<std::string>> cells;
  std::vector<std::string> head{"placement", "memory"};
  for (const Level& level : topology.levels()) head.push_back(level.name);
  head.push_back("communication");
  for (const auto& [name, growth] : growths) head.push_back("largest " + name);
  cells.push_back(head);
  for (const Compared& row : rows) {
    const StepEstimate estimate = estimate_step(row.summary, topology, flops);
    const double share = estimate.communication_share();
    nlohmann::json one = to_json(row.summary, row.recipe, layout);
    one["estimate"] = {{"compute_s", estimate.compute_s}, {"communication_share", std::isnan(share) ? nlohmann::json() : nlohmann::json(share)}};
    std::vector<std::string> line{row.recipe.placement.name, format_bytes(row.summary.bytes_per_rank)};
    for (const auto& level : row.summary.levels) line.push_back(format_bytes(level.bytes_per_step));
    line.push_back(std::isnan(share) ? "no bandwidth" : fmt::format("{:.0f} %", 100 * share));
    for (const auto& [name, growth] : growths) {
      const double largest = static_cast<double>(limit) / state_bytes_per_parameter(row.recipe, growth);
      one["largest_parameters"][name] = std::isinf(largest) ? nlohmann::json() : nlohmann::json(largest);
      line.push_back(std::isinf(largest) ? "no limit" : fmt::format("{:.2f} B", largest / 1e9));
    }
    for (const std::string& note : recipe_notes(row.recipe)) one["notes"].push_back(note);
    json["compare"].push_back(std::move(one));
    cells.push_back(std::move(line));
  }
  if (options.json) {
    std::cout << json.dump(2) << "\n";
    return;
  }
  std::cout << fmt::format("{}, {} micro-batch(es) per rank; bytes per step over the links of each level, all ranks together\n\n", topology.text(),
                           rows.front().summary.micro_batches);
  std::vector<size_t> width(head.size());
  for (const auto& line : cells) for (size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
  for (const auto& line : cells) {
    for (size_t c = 0; c < line.size(); ++c) std::cout << (c == 0 ? fmt::format("{:<{}}", line[c], width[c]) : fmt::format("  {:>{}}", line[c], width[c]));
    std::cout << "\n";
  }
  std::cout << fmt::format("\ncommunication: its share of a step without overlap, with the topology's bandwidths and compute at {:.0f} GFLOP/s per rank ({}).\n"
                           "largest: parameters whose states fill {} per rank ({}), on these ranks and on 4, 16 and ever more times the outermost units.\n",
                           flops / 1e9, options.flops ? "--flops" : "measured here on one thread; --flops sets another", format_bytes(limit),
                           options.limit_memory ? "--limit" : "this machine's memory; --limit memory=... sets another");
  for (const Compared& row : rows) {
    for (const std::string& note : recipe_notes(row.recipe)) std::cout << fmt::format("note: {}: {}\n", row.recipe.placement.name, note);
  }
}

// Preparing needs no model: one that takes every sequence and id.
ModelConfig any_model(const Tokenizer& tokenizer) {
  ModelConfig model;
  model.vocab_size = tokenizer.vocab_size();
  model.max_positions = int64_t{1} << 40;
  return model;
}

}  // namespace

int run_plan(const PlanOptions& options) {
  const RunConfig config = load_run_config(options.config.path, options.config.overrides);
  require(config, {Needs::Model});
  const Topology topology = topology_of(config, options.config.ranks);
  if (options.limit_ranks && topology.ranks() > *options.limit_ranks) {
    throw Error(ErrorKind::Usage, "the topology has more ranks than the limit").found(topology.text()).expected(fmt::format("at most {} ranks", *options.limit_ranks)).at("--limit ranks");
  }
  const auto tokenizer = open_tokenizer(config);
  const ModelSource model = open_model(config, tokenizer.get());
  Recipe recipe = make_recipe(config, model.config, topology);
  const LayoutLimits limits = layout_limits(config, model.config, topology);
  const Layout layout = planned_layout(options, config, model.config, tokenizer.get(), limits);
  const LayoutReport report = describe_layout(layout, limits);
  if (!options.svg.empty()) {
    write_aside(options.svg, layout_svg(layout, report, limits));
    log_info("the picture of the layout is in {}", options.svg);
  }
  if (options.show_layout) {
    std::cout << (options.json ? layout_json(layout, report, limits).dump(2) + "\n" : layout_text(layout, report, limits));
    return 0;
  }
  const int64_t limit = options.limit_memory.value_or(machine_memory());
  if (config.train.prefetch == 0) recipe.prefetch = prefetch_that_fits(recipe, layout, limit);
  const PlanSummary summary = summarize(recipe, layout);
  if (!options.compare.empty()) {
    std::vector<Compared> rows{{recipe, summary}};
    for (const std::string& text : options.compare) {
      Recipe other = recipe;
      set_placement(other, text);
      PlanSummary its = summarize(other, layout);
      rows.push_back({std::move(other), std::move(its)});
    }
    compare(rows, report, limit, options);
  } else if (options.json) {
    std::cout << to_json(summary, recipe, report).dump(2) << "\n";
  } else {
    print_plan(summary, recipe, layout, report, options.step ? fmt::format("step {}", *options.step) : "assumed");
  }
  if (options.limit_memory) {
    require_fit(summary, recipe, layout, *options.limit_memory);
  } else if (const int64_t machine = machine_memory(); summary.bytes_per_rank > machine) {
    log_warning("the plan needs {} per rank, this machine has {}; training here would be refused", format_bytes(summary.bytes_per_rank), format_bytes(machine));
  }
  return 0;
}

int run_validate(const ValidateOptions& options) {
  const RunConfig config = load_run_config(options.config.path, options.config.overrides);
  require(config, {Needs::Model});
  const Topology topology = topology_of(config, options.config.ranks);
  const auto tokenizer = open_tokenizer(config);
  const ModelSource model = open_model(config, tokenizer.get());
  check_storable(config, model);
  const Recipe recipe = make_recipe(config, model.config, topology);
  layout_limits(config, model.config, topology);
  check_optimizer(config.optimizer.spec);
  const std::vector<std::string> notes = recipe_notes(recipe);
  nlohmann::json json{{"ok", true}, {"notes", notes}, {"ranks", topology.ranks()}, {"parameters", recipe.model.parameters()}};
  const auto check_data = [&](DataUse use, const char* name) {
    if (tokenizer == nullptr) throw Error(ErrorKind::Usage, "data without a tokenizer").at("data.tokenizer").cure("set data.tokenizer");
    const auto data = open_data_of(config, use, *tokenizer, model.config, false);
    data->verify();
    if (use == DataUse::Train) check_samples(config, topology, *data);
    json[name] = {{"samples", data->counts().samples}, {"tokens", data->counts().tokens}};
    if (!options.json) std::cout << fmt::format("{}: {}\n", name, data->report());
    if (use == DataUse::Train && (config.train.steps || config.train.tokens || config.train.epochs)) {
      LrSchedule schedule = config.optimizer.schedule;
      schedule.steps = run_length(config, *data);
      check_schedule(schedule);
      json["steps"] = schedule.steps;
      if (!options.json) std::cout << fmt::format("steps: {}\n", schedule.steps);
    } else if (use == DataUse::Train) {
      log_warning("no length is set, so train would refuse this: add train.steps, train.tokens or train.epochs");
    }
  };
  if (!config.data.train.empty()) check_data(DataUse::Train, "train");
  if (!config.data.eval.empty()) check_data(DataUse::Eval, "eval");
  if (options.json) {
    std::cout << json.dump(2) << "\n";
  } else {
    for (const std::string& note : notes) std::cout << "note: " << note << "\n";
    std::cout << fmt::format("model: {} ({:.1f} M parameters)\ntopology: {}\nplacement: {}\nok\n", model.text, static_cast<double>(recipe.model.parameters()) / 1e6,
                             topology.text(), recipe.placement.name);
  }
  return 0;
}

int run_data_prepare(const DataPrepareOptions& options) {
  const RunConfig config = load_run_config(options.config.path, options.config.overrides);
  require(config, {Needs::TrainData});
  const auto tokenizer = need_tokenizer(config);
  for (const DataUse use : {DataUse::Train, DataUse::Eval}) {
    if (use == DataUse::Eval && config.data.eval.empty()) continue;
    const std::vector<std::filesystem::path> stores = store_paths(config, use, *tokenizer);
    if (options.force) {
      for (const auto& store : stores) std::filesystem::remove(store);
    }
    const auto data = open_data_of(config, use, *tokenizer, any_model(*tokenizer), false);
    std::cout << fmt::format("{}: {}\n", use == DataUse::Train ? "train" : "eval", data->report());
    for (const auto& store : stores) std::cout << fmt::format("  {} ({})\n", store.string(), format_bytes(static_cast<int64_t>(std::filesystem::file_size(store))));
  }
  return 0;
}

}  // namespace ballast
