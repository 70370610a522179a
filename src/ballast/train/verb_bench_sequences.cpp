// ballast bench sequences: whole steps on sequences of very different lengths, layouts beside each other in turns: real tokens per second and how
// evenly the ranks work.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/comm/collectives.h"
#include "ballast/kernel/allocator.h"
#include "ballast/train/machine.h"
#include "ballast/train/process.h"
#include "ballast/train/verb_bench.h"

namespace ballast {

namespace {

using Json = nlohmann::json;

struct SequenceBench {
  TrainBench train;
  std::vector<std::string> layouts{"packed"};
  std::string lengths;           // file with one length a line
  int64_t group = 16, turns = 3; // sequences of a step
};

SequenceBench parse_sequence_bench(const BenchOptions& options) {
  SequenceBench bench;
  BenchOptions others = options;
  LengthSettings settings = take_length_settings(others);
  bench.lengths = std::move(settings.lengths);
  if (!settings.layouts.empty()) bench.layouts = std::move(settings.layouts);
  bench.train = parse_train_bench(others, {{"group", &bench.group}, {"turns", &bench.turns}});
  return bench;
}

// The lengths of the steps, cut to the limit; the file is read again from its start where it is too short.
std::vector<std::vector<SampleRef>> selections_of(const SequenceBench& bench, int64_t limit) {
  const std::vector<int64_t> lengths = read_lengths(bench.lengths);
  std::vector<std::vector<SampleRef>> steps;
  uint64_t next = 0;
  for (int64_t s = 0; s < bench.train.warmup + bench.train.steps; ++s) {
    std::vector<SampleRef> step;
    for (int64_t i = 0; i < bench.group; ++i, ++next) step.push_back({next, std::min(limit, lengths[next % lengths.size()])});
    steps.push_back(std::move(step));
  }
  return steps;
}

// Tokens are a function of sample and position, so every layout trains the same.
int64_t token_of(uint64_t sample, int64_t position, int64_t vocab) {
  uint64_t x = sample * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(position) + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<int64_t>((x ^ (x >> 31)) % static_cast<uint64_t>(vocab));
}

MicroBatch batch_of(const MicroBatchLayout& layout, const std::vector<SampleRef>& selection, int64_t vocab) {
  return to_micro_batch(assemble(
      layout,
      [&](uint64_t sample, int64_t begin, int64_t length, int64_t* ids, int64_t* targets) {
        const int64_t whole = selection[sample - selection.front().sample].length;
        for (int64_t i = 0, t = begin; i < length; ++i, ++t) {
          ids[i] = token_of(sample, t, vocab);
          targets[i] = t + 1 < whole ? token_of(sample, t + 1, vocab) : -1;   // as in the peers, the last position has no target
        }
      },
      0));
}

struct MeasuredLayout {
  std::vector<double> rates, turn_rates;       // real tokens per second by step; median by turn
  std::vector<double> busy_imbalance;          // by step: max over mean of the ranks' busy seconds
  std::vector<double> plan_s;
  double tokens = 0, slots = 0, loss = 0, exposed_share = 0;
  int64_t memory = 0, layout_bytes = 0, micro_batches = 0, steps = 0;
};

void measure_turn(const SequenceBench& bench, const std::string& policy, const std::vector<std::vector<SampleRef>>& steps, LayoutLimits limits, Recipe recipe,
                  const ModelSource& model, Communicator& communicator, int threads, MeasuredLayout& measured) {
  Engine engine(recipe, communicator, EngineOptions{.seed = bench.train.config.run.seed, .threads = threads, .optimizer = bench.train.config.optimizer.spec});
  engine.set_weights(initial_weights(model, bench.train.config.run.seed));
  std::vector<double> rates;
  const auto ranks = static_cast<size_t>(communicator.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto planned = std::chrono::steady_clock::now();
    limits.options.epoch = static_cast<int64_t>(s) + 1;   // layouts that draw draw anew in every step
    const Layout layout = make_layout(policy, steps[s], limits);
    const auto& mine = layout.ranks[static_cast<size_t>(communicator.rank())];
    const StepTokens ids = step_tokens(layout, [&](const MicroBatchLayout& batch) {
      const at::Tensor of_batch = batch_of(batch, steps[s], model.config.vocab_size).ids;
      return std::vector<int64_t>(of_batch.const_data_ptr<int64_t>(), of_batch.const_data_ptr<int64_t>() + of_batch.numel());
    });
    const StepGraph graph = build_step(recipe, communicator.rank(), mine, Work::Train, &ids);
    const double plan_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - planned).count();
    std::vector<MicroBatch> batches;
    for (const MicroBatchLayout& batch : mine) batches.push_back(batch_of(batch, steps[s], model.config.vocab_size));
    StepSettings settings{.step = static_cast<int64_t>(s) + 1, .lr = 1e-4};
    int64_t tokens = 0;
    for (const SampleRef& sample : steps[s]) {
      tokens += sample.length;
      settings.trained_targets += sample.length - 1;
    }
    std::vector<int64_t> sent = communicator.layout_bytes_sent();
    communicator.barrier("bench step");
    const auto began = std::chrono::steady_clock::now();
    measured.loss = engine.train(graph, batches, settings).loss;
    communicator.barrier("bench step");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (static_cast<int64_t>(s) < bench.train.warmup) continue;
    std::array<double, 2> own{engine.occupancy().compute_s, engine.occupancy().exposed_link_s};
    std::vector<std::array<double, 2>> all(ranks);
    communicator.all_gather_fixed(own.data(), sizeof own, all.data(), "busy seconds");
    double most = 0, sum = 0, exposed = 0;
    for (const auto& [busy, waited] : all) {
      most = std::max(most, busy);
      sum += busy;
      exposed += waited;
    }
    const std::vector<int64_t> after = communicator.layout_bytes_sent();
    for (size_t l = 0; l < sent.size(); ++l) sent[l] = after[l] - sent[l];
    for (int64_t bytes : all_sum(communicator, sent, "layout bytes")) measured.layout_bytes += bytes;
    rates.push_back(static_cast<double>(tokens) / seconds);
    measured.busy_imbalance.push_back(most * static_cast<double>(ranks) / sum);
    measured.plan_s.push_back(plan_s);
    measured.exposed_share += exposed / static_cast<double>(ranks) / seconds;
    measured.tokens += static_cast<double>(tokens);
    measured.slots += static_cast<double>(layout.slots());
    measured.micro_batches = std::max(measured.micro_batches, layout.micro_batches());
    ++measured.steps;
  }
  measured.turn_rates.push_back(median(rates));
  measured.rates.insert(measured.rates.end(), rates.begin(), rates.end());
}

}  // namespace

LengthSettings take_length_settings(BenchOptions& options) {
  LengthSettings settings;
  std::erase_if(options.overrides, [&](const std::string& one) {
    const std::string value = one.substr(one.find('=') + 1);
    if (one.starts_with("lengths=")) {
      settings.lengths = value;
    } else if (one.starts_with("layouts=")) {
      settings.layouts = split_placements(value);
    } else {
      return false;
    }
    return true;
  });
  if (settings.lengths.empty()) {
    throw Error(ErrorKind::Usage, "no list of lengths is given").at("lengths").expected("a file with one length a line").cure("lengths=FILE, as in 'lengths=FILE layouts=packed,balanced ranks=4'");
  }
  return settings;
}

std::vector<int64_t> read_lengths(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::Data, "the list of lengths cannot be read").at(path).cure("give a file with one length a line");
  std::vector<int64_t> lengths;
  int64_t line = 0;
  for (std::string text; std::getline(file, text);) {
    ++line;
    text.erase(text.find_last_not_of(" \t\r") + 1);
    if (text.empty()) continue;
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end != text.data() + text.size() || value < 1 || value > kMostTokens) {
      throw Error(ErrorKind::Data, "not a length").at(fmt::format("{}:{}", path, line)).found(printable(text)).expected(fmt::format("a whole number of tokens from 1 to {}, alone on its line", kMostTokens));
    }
    lengths.push_back(value);
  }
  if (lengths.empty()) throw Error(ErrorKind::Data, "a list of lengths without a length").at(path).expected("one length a line");
  return lengths;
}

int bench_sequences(const BenchOptions& options) {
  const SequenceBench bench = parse_sequence_bench(options);
  require(bench.train.config, {Needs::Model});
  return on_ranks(bench.train.config, bench.train.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const ModelSource model = open_model(bench.train.config, nullptr);
    const auto steps = selections_of(bench, sequence_limit(bench.train.config, model.config));
    const Recipe recipe = make_recipe(bench.train.config, model.config, topology);
    std::vector<MeasuredLayout> all(bench.layouts.size());
    std::vector<LayoutLimits> limits;
    for (const std::string& policy : bench.layouts) {
      RunConfig config = bench.train.config;
      config.data.layout = policy;
      limits.push_back(layout_limits(config, model.config, topology));
      make_layout(policy, steps.front(), limits.back());   // an unknown name is said before anything is measured
    }
    for (int64_t turn = 0; turn < bench.turns; ++turn) {
      for (size_t p = 0; p < bench.layouts.size(); ++p) {
        reset_peak();
        measure_turn(bench, bench.layouts[p], steps, limits[p], recipe, model, communicator, threads, all[p]);
        all[p].memory = std::max(all[p].memory, peak_bytes());
        if (communicator.rank() == 0) std::cerr << fmt::format("turn {} of {}: {:<18} {:.1f} tokens/s\n", turn + 1, bench.turns, bench.layouts[p], all[p].turn_rates.back());
      }
    }
    if (communicator.rank() != 0) return 0;
    Json report{{"name", "sequences"}, {"ranks", communicator.size()}, {"topology", topology.text()}, {"model", model.text}, {"precision", bench.train.config.train.precision},
                {"placement", recipe.placement.name}, {"group", bench.group}, {"threads", threads}, {"turns", bench.turns}, {"transport", communicator.name()}, {"cpu_flags", cpu_flags()}};
    for (size_t p = 0; p < bench.layouts.size(); ++p) {
      const MeasuredLayout& one = all[p];
      const auto [least, most] = std::minmax_element(one.turn_rates.begin(), one.turn_rates.end());
      const auto count = static_cast<double>(one.steps);
      report["layouts"].push_back({{"layout", bench.layouts[p]}, {"real_tokens_per_s", median(one.rates)}, {"turn_medians", one.turn_rates}, {"spread", (*most - *least) / median(one.rates)},
                                   {"padding_share", 1 - one.tokens / one.slots}, {"busy_imbalance", median(one.busy_imbalance)}, {"exposed_communication_share", one.exposed_share / count},
                                   {"layout_bytes_per_step", static_cast<double>(one.layout_bytes) / count}, {"micro_batches", one.micro_batches}, {"plan_s", median(one.plan_s)},
                                   {"peak_allocated_bytes", one.memory}, {"loss", one.loss}});
    }
    if (options.json) {
      std::cout << report.dump(2) << "\n";
      return 0;
    }
    std::cout << fmt::format("{:<18} {:>14} {:>8} {:>9} {:>10} {:>9} {:>14} {:>10} {:>12}\n", "layout", "real tokens/s", "spread", "padding", "imbalance", "exposed", "layout bytes", "planning", "memory");
    for (const Json& one : report["layouts"]) {
      std::cout << fmt::format("{:<18} {:>14.1f} {:>7.0f}% {:>8.1f}% {:>10.3f} {:>8.0f}% {:>14} {:>7.1f} ms {:>12}\n", one["layout"].get<std::string>(), one["real_tokens_per_s"].get<double>(),
                               100 * one["spread"].get<double>(), 100 * one["padding_share"].get<double>(), one["busy_imbalance"].get<double>(),
                               100 * one["exposed_communication_share"].get<double>(), format_bytes(static_cast<int64_t>(one["layout_bytes_per_step"].get<double>())),
                               1e3 * one["plan_s"].get<double>(), format_bytes(one["peak_allocated_bytes"].get<int64_t>()));
    }
    return 0;
  });
}

}  // namespace ballast
