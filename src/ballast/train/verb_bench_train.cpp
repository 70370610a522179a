// ballast bench train: whole steps on random tokens.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
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

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
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

}  // namespace

TrainBench parse_train_bench(const BenchOptions& options, const std::map<std::string, int64_t*>& more) {
  TrainBench bench;
  bench.ranks = options.ranks;
  std::vector<std::string> overrides;
  std::map<std::string, int64_t*> counts{{"batch", &bench.batch},   {"seq", &bench.sequence},  {"steps", &bench.steps}, {"warmup", &bench.warmup},
                                               {"ranks", &bench.ranks},   {"micro_batches", &bench.micro_batches}};
  counts.insert(more.begin(), more.end());
  const std::map<std::string, std::string> renamed{{"precision", "train.precision"}, {"threads", "train.threads"}, {"recompute", "train.recompute"}, {"seed", "run.seed"}};
  for (const std::string& override : options.overrides) {
    const size_t equal = override.find('=');
    const std::string key = override.substr(0, equal);
    if (const auto count = counts.find(key); count != counts.end() && equal != std::string::npos) {
      *count->second = parse_count(override.substr(equal + 1));
      const int64_t least = key == "warmup" ? 0 : 1, most = key == "batch_tokens" ? kMostStepTokens : key == "ranks" ? 100'000'000 : kMostTokens;
      if (*count->second < least || *count->second > most) {
        throw Error(ErrorKind::Usage, fmt::format("{} is out of range", key)).at(override).expected(fmt::format("a whole number from {} to {}", least, most));
      }
      continue;
    }
    const auto rename = renamed.find(key);
    overrides.push_back(rename == renamed.end() || equal == std::string::npos ? override : rename->second + override.substr(equal));
  }
  bench.config = parse_run_config("", "command line", overrides);
  return bench;
}

namespace {

struct RandomWork {
  std::vector<MicroBatchLayout> layouts;
  std::vector<MicroBatch> batches;
  StepTokens tokens;   // of all ranks
  StepSettings settings;
};

RandomWork random_work(const TrainBench& bench, const ModelSource& model, const Communicator& communicator) {
  if (bench.sequence > model.config.max_positions) {
    throw Error(ErrorKind::Usage, "seq is longer than the model has positions").at("seq").found(fmt::format("{} > {}", bench.sequence, model.config.max_positions));
  }
  RandomWork work;
  MicroBatchLayout layout;
  for (int64_t s = 0; s < bench.batch; ++s) layout.pieces.push_back({static_cast<uint64_t>(s), 0, bench.sequence, 0});
  work.layouts.assign(static_cast<size_t>(bench.micro_batches), layout);
  for (int64_t rank = 0; rank < communicator.size(); ++rank) {
    for (int64_t m = 0; m < bench.micro_batches; ++m) {
      const bool first = m == 0, last = m + 1 == bench.micro_batches;
      if (rank != communicator.rank() && !first && !last) continue;
      MicroBatch batch = random_batch(bench, model.config.vocab_size, 1 + static_cast<uint64_t>(rank * bench.micro_batches + m));
      const int64_t* ids = batch.ids.const_data_ptr<int64_t>();
      if (first) work.tokens.first.insert(work.tokens.first.end(), ids, ids + batch.ids.numel());
      if (last) work.tokens.last.insert(work.tokens.last.end(), ids, ids + batch.ids.numel());
      if (rank == communicator.rank()) work.batches.push_back(std::move(batch));
    }
  }
  work.settings.trained_targets = communicator.size() * bench.micro_batches * bench.batch * (bench.sequence - 1);
  return work;
}

}  // namespace

void train_random_step(const TrainBench& bench, Engine& engine, const ModelSource& model, Communicator& communicator, double lr) {
  RandomWork work = random_work(bench, model, communicator);
  work.settings.lr = lr;
  engine.train(build_step(engine.recipe(), communicator.rank(), work.layouts, Work::Train, &work.tokens), work.batches, work.settings);
}

MeasuredSteps measure_steps(const TrainBench& bench, Recipe recipe, const ModelSource& model, Communicator& communicator, int threads) {
  RandomWork work = random_work(bench, model, communicator);
  Layout whole{.name = "bench", .ranks = std::vector<std::vector<MicroBatchLayout>>(static_cast<size_t>(communicator.size()), work.layouts)};
  choose_prefetch(bench.config, whole, communicator, recipe);
  Engine engine(recipe, communicator, EngineOptions{.seed = bench.config.run.seed, .threads = threads, .optimizer = bench.config.optimizer.spec});
  engine.set_weights(initial_weights(model, bench.config.run.seed));
  const StepGraph graph = build_step(recipe, communicator.rank(), work.layouts, Work::Train, &work.tokens);
  work.settings.lr = 1e-4;
  MeasuredSteps measured;
  double compute = 0, exposed = 0;
  std::vector<int64_t> sent_before;
  for (int64_t step = 1; step <= bench.warmup + bench.steps; ++step) {
    if (step == bench.warmup + 1) sent_before = communicator.bytes_sent();
    communicator.barrier("bench step");
    const auto began = std::chrono::steady_clock::now();
    work.settings.step = step;
    measured.losses.push_back(engine.train(graph, work.batches, work.settings).loss);
    communicator.barrier("bench step");
    if (step <= bench.warmup) continue;
    measured.times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    compute += engine.occupancy().compute_s;
    exposed += engine.occupancy().exposed_link_s;
  }
  std::vector<int64_t> sent = communicator.bytes_sent();
  for (size_t l = 0; l < sent.size(); ++l) sent[l] = (sent[l] - sent_before[l]) / bench.steps;
  measured.bytes = all_sum(communicator, sent, "bytes");
  const double busy = median(measured.times) * static_cast<double>(bench.steps);
  measured.compute_share = compute / busy;
  measured.exposed_share = exposed / busy;
  measured.tokens = static_cast<double>(communicator.size() * bench.micro_batches * bench.batch * bench.sequence);
  return measured;
}

int bench_train(const BenchOptions& options) {
  TrainBench bench = parse_train_bench(options);
  require(bench.config, {Needs::Model});
  return on_ranks(bench.config, bench.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const ModelSource model = open_model(bench.config, nullptr);
    const Recipe recipe = make_recipe(bench.config, model.config, topology);
    GemmPeak gemm_peak([&] { return measured_gemm_peak(communicator, recipe.compute, threads); });
    const MeasuredSteps measured = measure_steps(bench, recipe, model, communicator, threads);
    const int64_t ranks = communicator.size();
    const int64_t rss = peak_rss_bytes();
    std::vector<int64_t> all_rss(static_cast<size_t>(ranks));
    communicator.all_gather_fixed(&rss, sizeof rss, all_rss.data(), "peak memory");
    const double mine = median(measured.times), tokens = measured.tokens;
    std::vector<double> all_times(static_cast<size_t>(ranks));
    communicator.all_gather_fixed(&mine, sizeof mine, all_times.data(), "step times");
    const double step_s = all_times[0];
    const std::vector<int64_t> lengths(static_cast<size_t>(ranks * bench.micro_batches * bench.batch), bench.sequence);
    const double flops = linear_flops_per_token(recipe.model) * tokens + attention_flops(model.config, lengths);
    while (gemm_peak.doubt(flops / step_s)) {
    }
    if (communicator.rank() != 0) return 0;
    const double peak = gemm_peak.rate();
    nlohmann::json json{{"name", "train"}, {"model", model.text}, {"parameters", recipe.model.parameters()}, {"placement", recipe.placement.name},
                        {"precision", bench.config.train.precision}, {"ranks", ranks}, {"threads", threads}, {"batch", bench.batch}, {"seq", bench.sequence},
                        {"micro_batches", bench.micro_batches}, {"tokens_per_s", tokens / step_s}, {"step_s", step_s}, {"step_times", measured.times},
                        {"loss", measured.losses.back()}, {"loss_first", measured.losses.front()}, {"peak_rss_bytes", *std::max_element(all_rss.begin(), all_rss.end())},
                        {"peak_allocated_bytes", peak_bytes()}, {"mfu", flops / step_s / peak}, {"gemm_peak_flops", peak},
                        {"compute_share", measured.compute_share}, {"exposed_communication_share", measured.exposed_share},
                        {"cpu_flags", cpu_flags()}, {"cpu_path", cpu_path()}, {"transport", communicator.name()}};
    for (int l = 0; l < topology.level_count(); ++l) json["bytes"][topology.level(l).name] = measured.bytes[static_cast<size_t>(l)];
    if (options.json) {
      std::cout << json.dump(2) << "\n";
    } else {
      std::cout << fmt::format("{}  {} rank{}  {}  {} x {} tokens\n{:.1f} tokens/s, {:.4f} s per step (median of {}), loss {:.4f}, MFU {:.1f} % of {:.1f} GFLOP/s, peak memory {:.2f} GiB\n",
                               model.text, ranks, ranks == 1 ? "" : "s", bench.config.train.precision, bench.batch, bench.sequence, tokens / step_s, step_s, bench.steps,
                               measured.losses.back(), 100 * flops / step_s / peak, peak / 1e9, static_cast<double>(json["peak_rss_bytes"].get<int64_t>()) / (1 << 30));
    }
    return 0;
  });
}

}  // namespace ballast
