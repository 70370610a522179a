// ballast bench: figures of this machine as JSON, for comparison with other programs on it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/comm/collectives.h"
#include "ballast/kernel/allocator.h"
#include "ballast/train/commands.h"
#include "ballast/train/machine.h"
#include "ballast/train/process.h"
#include "ballast/train/setup.h"

namespace ballast {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

// The bench's own short keys beside those of a configuration.
struct TrainBench {
  int64_t batch = 1, sequence = 512, steps = 7, warmup = 2, micro_batches = 1;
  int64_t ranks = 0;
  RunConfig config;
};

TrainBench parse_train_bench(const BenchOptions& options) {
  TrainBench bench;
  bench.ranks = options.ranks;
  std::vector<std::string> overrides;
  const std::map<std::string, int64_t*> counts{{"batch", &bench.batch},   {"seq", &bench.sequence},  {"steps", &bench.steps}, {"warmup", &bench.warmup},
                                               {"ranks", &bench.ranks},   {"micro_batches", &bench.micro_batches}};
  const std::map<std::string, std::string> renamed{{"precision", "train.precision"}, {"threads", "train.threads"}, {"recompute", "train.recompute"}, {"seed", "run.seed"}};
  for (const std::string& override : options.overrides) {
    const size_t equal = override.find('=');
    const std::string key = override.substr(0, equal);
    if (const auto count = counts.find(key); count != counts.end() && equal != std::string::npos) {
      *count->second = parse_count(override.substr(equal + 1));
      if (*count->second < (key == "warmup" ? 0 : 1)) throw Error(ErrorKind::Usage, fmt::format("{} must be positive", key)).at(override);
      continue;
    }
    const auto rename = renamed.find(key);
    overrides.push_back(rename == renamed.end() || equal == std::string::npos ? override : rename->second + override.substr(equal));
  }
  bench.config = parse_run_config("", "command line", overrides);
  return bench;
}

MicroBatch random_batch(const TrainBench& bench, int64_t vocab, uint64_t seed) {
  MicroBatch batch;
  std::vector<int64_t> ids, positions, targets;
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  const auto token = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab));
  };
  batch.starts.push_back(0);
  for (int64_t s = 0; s < bench.batch; ++s) {
    int64_t next = token();
    for (int64_t t = 0; t < bench.sequence; ++t) {
      ids.push_back(next);
      positions.push_back(t);
      next = token();
      // As in the peers, the last position of a sequence has no target.
      targets.push_back(t + 1 < bench.sequence ? next : -1);
    }
    batch.starts.push_back(static_cast<int64_t>(ids.size()));
    batch.sample_keys.push_back(static_cast<uint64_t>(s));
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.targets = at::tensor(targets, at::kLong);
  return batch;
}

int bench_train(const BenchOptions& options) {
  TrainBench bench = parse_train_bench(options);
  require(bench.config, {Needs::Model});
  return on_ranks(bench.config, bench.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const ModelSource model = open_model(bench.config, nullptr);
    const Recipe recipe = make_recipe(bench.config, model.config, topology);
    if (bench.sequence > model.config.max_positions) {
      throw Error(ErrorKind::Usage, "seq is longer than the model has positions").at("seq").found(fmt::format("{} > {}", bench.sequence, model.config.max_positions));
    }
    Engine engine(recipe, communicator, EngineOptions{bench.config.run.seed, threads, bench.config.optimizer.spec});
    engine.set_weights(initial_weights(model, bench.config.run.seed));
    const double peak = measured_gemm_peak(communicator, recipe.compute, threads);
    MicroBatchLayout layout;
    for (int64_t s = 0; s < bench.batch; ++s) layout.pieces.push_back({static_cast<uint64_t>(s), 0, bench.sequence, 0});
    const std::vector<MicroBatchLayout> layouts(static_cast<size_t>(bench.micro_batches), layout);
    const StepGraph graph = build_step(recipe, communicator.rank(), layouts, Work::Train);
    std::vector<MicroBatch> batches;
    for (int64_t m = 0; m < bench.micro_batches; ++m) {
      batches.push_back(random_batch(bench, model.config.vocab_size, 1 + static_cast<uint64_t>(communicator.rank() * bench.micro_batches + m)));
    }
    const int64_t ranks = communicator.size();
    std::vector<double> times, losses;
    double compute = 0, exposed = 0;
    std::vector<int64_t> sent_before;
    for (int64_t step = 1; step <= bench.warmup + bench.steps; ++step) {
      if (step == bench.warmup + 1) sent_before = communicator.bytes_sent();
      communicator.barrier("bench step");
      const auto began = std::chrono::steady_clock::now();
      StepSettings settings;
      settings.step = step;
      settings.lr = 1e-4;
      settings.trained_targets = ranks * bench.micro_batches * bench.batch * (bench.sequence - 1);
      losses.push_back(engine.train(graph, batches, settings).loss);
      communicator.barrier("bench step");
      if (step <= bench.warmup) continue;
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
      compute += engine.occupancy().compute_s;
      exposed += engine.occupancy().exposed_link_s;
    }
    std::vector<int64_t> sent = communicator.bytes_sent();
    for (size_t l = 0; l < sent.size(); ++l) sent[l] = (sent[l] - sent_before[l]) / bench.steps;
    const int64_t rss = peak_rss_bytes();
    std::vector<int64_t> all_rss(static_cast<size_t>(ranks));
    communicator.all_gather_fixed(&rss, sizeof rss, all_rss.data(), "peak memory");
    std::vector<int64_t> all_sent = all_sum(communicator, sent, "bytes");
    if (communicator.rank() != 0) return 0;
    const double step_s = median(times);
    const double tokens = static_cast<double>(ranks * bench.micro_batches * bench.batch * bench.sequence);
    const std::vector<int64_t> lengths(static_cast<size_t>(ranks * bench.micro_batches * bench.batch), bench.sequence);
    const double flops = linear_flops_per_token(recipe.model) * tokens + attention_flops(model.config, lengths);
    nlohmann::json json{{"name", "train"}, {"model", model.text}, {"parameters", recipe.model.parameters()}, {"placement", recipe.placement.name},
                        {"precision", bench.config.train.precision}, {"ranks", ranks}, {"threads", threads}, {"batch", bench.batch}, {"seq", bench.sequence},
                        {"micro_batches", bench.micro_batches}, {"tokens_per_s", tokens / step_s}, {"step_s", step_s}, {"step_times", times},
                        {"loss", losses.back()}, {"loss_first", losses.front()}, {"peak_rss_bytes", *std::max_element(all_rss.begin(), all_rss.end())},
                        {"peak_allocated_bytes", peak_bytes()}, {"mfu", flops / step_s / peak}, {"gemm_peak_flops", peak},
                        {"compute_share", compute / static_cast<double>(bench.steps) / step_s}, {"exposed_communication_share", exposed / static_cast<double>(bench.steps) / step_s},
                        {"cpu_flags", cpu_flags()}, {"cpu_path", cpu_path()}, {"transport", communicator.name()}};
    for (int l = 0; l < topology.level_count(); ++l) json["bytes"][topology.level(l).name] = all_sent[static_cast<size_t>(l)];
    if (options.json) {
      std::cout << json.dump(2) << "\n";
    } else {
      std::cout << fmt::format("{}  {} rank{}  {}  {} x {} tokens\n{:.1f} tokens/s, {:.4f} s per step (median of {}), loss {:.4f}, MFU {:.1f} % of {:.1f} GFLOP/s, peak memory {:.2f} GiB\n",
                               model.text, ranks, ranks == 1 ? "" : "s", bench.config.train.precision, bench.batch, bench.sequence, tokens / step_s, step_s, bench.steps,
                               losses.back(), 100 * flops / step_s / peak, peak / 1e9, static_cast<double>(json["peak_rss_bytes"].get<int64_t>()) / (1 << 30));
    }
    return 0;
  });
}

int bench_gemm(const BenchOptions& options) {
  const RunConfig config = parse_run_config("", "command line", [&] {
    std::vector<std::string> overrides;
    for (const std::string& one : options.overrides) overrides.push_back(one.starts_with("threads=") ? "train." + one : one);
    return overrides;
  }());
  return on_ranks(config, options.ranks, [&](const Topology&, Communicator& communicator, int threads) {
    const double fp32 = measured_gemm_peak(communicator, DType::Float32, threads), bf16 = measured_gemm_peak(communicator, DType::BFloat16, threads);
    if (communicator.rank() != 0) return 0;
    if (options.json) {
      std::cout << nlohmann::json{{"name", "gemm"}, {"fp32_flops", fp32}, {"bf16_flops", bf16}, {"threads", threads}, {"cpu_flags", cpu_flags()}}.dump(2) << "\n";
    } else {
      std::cout << fmt::format("fp32 {:.1f} GFLOP/s, bf16 {:.1f} GFLOP/s with {} threads\n", fp32 / 1e9, bf16 / 1e9, threads);
    }
    return 0;
  });
}

struct Bench {
  const char* name;
  int (*run)(const BenchOptions&);
};
constexpr Bench kBenches[] = {{"train", bench_train}, {"gemm", bench_gemm}};

}  // namespace

int run_bench(const BenchOptions& options) {
  std::vector<std::string> names;
  for (const Bench& bench : kBenches) {
    if (options.name == bench.name) return bench.run(options);
    names.push_back(bench.name);
  }
  const std::string near = nearest(options.name, names);
  throw Error(ErrorKind::Usage, fmt::format("no benchmark '{}'", printable(options.name)))
      .expected(fmt::format("one of {}", fmt::join(names, ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace ballast
