// ballast bench layout: the layouts beside each other on a list of lengths, by what the plan predicts; nothing is trained, so any number of ranks goes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/layout/report.h"
#include "ballast/plan/permutation.h"
#include "ballast/train/verb_bench.h"

namespace ballast {

namespace {

using Json = nlohmann::json;

struct LayoutBench {
  TrainBench train;
  std::vector<std::string> layouts = layout_policies();
  std::string lengths;
  int64_t micro_tokens = 8192, batch_tokens = 0;   // of one rank; of a step, 0: what all ranks hold
};

LayoutBench parse_layout_bench(const BenchOptions& options) {
  LayoutBench bench;
  BenchOptions others = options;
  LengthSettings settings = take_length_settings(others);
  bench.lengths = std::move(settings.lengths);
  if (!settings.layouts.empty()) bench.layouts = std::move(settings.layouts);
  bench.train = parse_train_bench(others, {{"micro_tokens", &bench.micro_tokens}, {"batch_tokens", &bench.batch_tokens}});
  return bench;
}

// Steps of a shuffled list: sequences until the next would exceed the step's tokens; the list begins again where it ends.
std::vector<std::vector<SampleRef>> steps_of(const LayoutBench& bench, int64_t tokens) {
  const std::vector<int64_t> lengths = read_lengths(bench.lengths);
  const Permutation order(static_cast<int64_t>(lengths.size()), bench.train.config.run.seed, 0);
  std::vector<std::vector<SampleRef>> steps;
  uint64_t next = 0;
  for (int64_t s = 0; s < bench.train.steps; ++s) {
    std::vector<SampleRef> step;
    for (int64_t sum = 0;; ++next) {
      const int64_t length = lengths[static_cast<size_t>(order(static_cast<int64_t>(next % lengths.size())))];
      if (!step.empty() && sum + length > tokens) break;
      step.push_back({next, length});
      sum += length;
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

struct Row {
  std::string name, refused;
  double imbalance = 0, worst = 0, tokens = 0, slots = 0, step_s = 0, bound_s = 0, plan_ms = 0, remapped = 0, cut = 0, micro_batches = 0;
  int64_t micro_tokens = 0;   // the most that a rank's micro-batch had to hold
  int64_t needed = 0;         // micro_tokens that would hold the longest, of a layout that is refused; 0: none
  std::vector<double> sharing, moved;
};

Row measure(const std::string& policy, const std::vector<std::vector<SampleRef>>& steps, const LayoutLimits& given) {
  Row row{.name = policy, .micro_tokens = given.micro_tokens};
  row.sharing.assign(static_cast<size_t>(given.topology->level_count()), 0.0), row.moved = row.sharing;
  const auto count = static_cast<double>(steps.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    LayoutLimits limits = given;
    limits.options.epoch = static_cast<int64_t>(s);
    if (!layout_cuts(policy)) {   // what keeps sequences whole needs memory for the longest
      for (const SampleRef& sample : steps[s]) limits.micro_tokens = std::max(limits.micro_tokens, sample.length);
    }
    row.micro_tokens = std::max(row.micro_tokens, limits.micro_tokens);
    try {
      const auto begin = std::chrono::steady_clock::now();
      const Layout layout = make_layout(policy, steps[s], limits);
      row.plan_ms += 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
      const LayoutReport report = describe_layout(layout, limits);
      row.imbalance += report.cost_imbalance / count;
      row.worst = std::max(row.worst, report.cost_imbalance);
      row.tokens += static_cast<double>(report.tokens), row.slots += static_cast<double>(report.slots);
      row.step_s += report.step_s / count, row.bound_s += report.lower_bound_s / count;
      row.cut += static_cast<double>(report.cut_sequences) / count;
      row.micro_batches += static_cast<double>(report.micro_batches) / count;
      row.remapped += static_cast<double>(report.remapped_micro_batches) / count;
      for (size_t level = 0; level < row.sharing.size(); ++level) {
        row.sharing[level] += report.sharing_bytes[level] / count, row.moved[level] += report.moved_bytes[level] / count;
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Usage || error.place() == "data.sequence.layout") throw;
      row.refused = error.summary();
      int64_t longest = 1;
      for (const auto& step : steps) for (const SampleRef& sample : step) longest = std::max(longest, sample.length);
      try {
        row.needed = least_micro_tokens(policy, longest, given);
      } catch (const Error& other) {   // however much a micro-batch holds
        row.refused = other.summary();
      }
      break;
    }
  }
  return row;
}

}  // namespace

int bench_layout(const BenchOptions& options) {
  const LayoutBench bench = parse_layout_bench(options);
  const ModelConfig model = bench.train.config.model.given() ? open_model(bench.train.config, nullptr).config : preset("gpt2-124m");
  const Topology topology = topology_of(bench.train.config, bench.train.ranks > 0 || bench.train.config.topology ? bench.train.ranks : 64);
  LayoutLimits limits{.ranks = topology.ranks(), .micro_tokens = bench.micro_tokens, .topology = topology, .options = bench.train.config.data.sequence, .heads = model.heads, .kv_heads = model.kv_heads};
  limits.cost = sequence_cost_of(bench.train.config, model, topology);
  const auto steps = steps_of(bench, bench.batch_tokens > 0 ? bench.batch_tokens : topology.ranks() * bench.micro_tokens);
  double sequences = 0;
  for (const auto& step : steps) sequences += static_cast<double>(step.size()) / static_cast<double>(steps.size());
  std::vector<Row> rows;
  for (const std::string& policy : bench.layouts) rows.push_back(measure(policy, steps, limits));
  const std::vector<int64_t> zones = zone_boundaries(limits);
  if (options.json) {
    Json json{{"name", "layout"}, {"topology", topology.text()}, {"ranks", topology.ranks()}, {"steps", steps.size()}, {"sequences_per_step", sequences}, {"micro_tokens", bench.micro_tokens}};
    for (int level = 0; level < topology.level_count(); ++level) {
      json["hidden_from_tokens"][topology.level(level).name] = zones[static_cast<size_t>(level)] < 0 ? Json() : Json(zones[static_cast<size_t>(level)]);
    }
    for (const Row& row : rows) {
      Json one{{"layout", row.name}};
      if (!row.refused.empty()) {
        one["refused"] = row.refused;
        one["needed_micro_tokens"] = row.needed > 0 ? Json(row.needed) : Json();
      } else {
        one.update({{"imbalance_mean", row.imbalance}, {"imbalance_max", row.worst}, {"padding_share", 1 - row.tokens / row.slots}, {"predicted_step_s", row.step_s}, {"lower_bound_s", row.bound_s},
                    {"micro_tokens", row.micro_tokens}, {"micro_batches", row.micro_batches}, {"remapped_micro_batches", row.remapped}, {"cut_sequences", row.cut}, {"plan_ms", row.plan_ms}});
        for (int level = 0; level < topology.level_count(); ++level) {
          one["sharing_bytes"][topology.level(level).name] = row.sharing[static_cast<size_t>(level)];
          one["moved_bytes"][topology.level(level).name] = row.moved[static_cast<size_t>(level)];
        }
      }
      json["layouts"].push_back(std::move(one));
    }
    std::cout << json.dump(2) << "\n";
    return 0;
  }
  std::cout << fmt::format("{}, {} steps of {:.0f} sequences, {} tokens per rank; a ring over a unit hides from:", topology.text(), steps.size(), sequences, bench.micro_tokens);
  for (int level = 0; level < topology.level_count(); ++level) {
    const int64_t from = zones[static_cast<size_t>(level)];
    std::cout << fmt::format(" {} {}", topology.level(level).name, from < 0 ? "never" : fmt::format("{} tokens", from));
  }
  std::cout << fmt::format("\n\n{:<18} {:>9} {:>8} {:>9} {:>11} {:>8} {:>8} {:>8}", "layout", "imbalance", "worst", "padding", "step", "of best", "slots", "planning");
  for (const Level& level : topology.levels()) std::cout << fmt::format(" {:>14}", "rings " + level.name);
  for (const Level& level : topology.levels()) std::cout << fmt::format(" {:>14}", "moves " + level.name);
  std::cout << "\n";
  for (const Row& row : rows) {
    if (!row.refused.empty()) {
      std::cout << fmt::format("{:<18} refused: {}{}\n", row.name, row.refused, row.needed > 0 ? fmt::format("; micro_tokens={} holds every sequence", row.needed) : "");
      continue;
    }
    std::cout << fmt::format("{:<18} {:>9.3f} {:>8.3f} {:>8.2f}% {:>8.2f} ms {:>8.3f} {:>8} {:>5.2f} ms", row.name, row.imbalance, row.worst, 100 * (1 - row.tokens / row.slots), 1e3 * row.step_s,
                             row.step_s / row.bound_s, row.micro_tokens, row.plan_ms);
    for (const auto* bytes : {&row.sharing, &row.moved}) {
      for (const double one : *bytes) std::cout << fmt::format(" {:>14}", format_bytes(static_cast<int64_t>(one)));
    }
    std::cout << "\n";
  }
  return 0;
}

}  // namespace ballast
