#pragma once
// The parts of ballast bench: settings of a training benchmark, its measured steps, and the benchmarks themselves.
#include <map>
#include <string>
#include <vector>

#include "ballast/train/commands.h"
#include "ballast/train/median.h"
#include "ballast/train/setup.h"

namespace ballast {

// As a configuration bounds them: tokens of a sequence or a rank's micro-batch, and of a step.
constexpr int64_t kMostTokens = int64_t{1} << 24, kMostStepTokens = int64_t{1} << 40;

// The bench's own short keys beside those of a configuration.
struct TrainBench {
  int64_t batch = 1, sequence = 512, steps = 7, warmup = 2, micro_batches = 1;
  int64_t ranks = 0;
  RunConfig config;
};
// `more`: further counts by name. Throws Error(Usage).
TrainBench parse_train_bench(const BenchOptions& options, const std::map<std::string, int64_t*>& more = {});

// Steps on random tokens under one recipe.
struct MeasuredSteps {
  std::vector<double> times, losses;      // times without the warm-up [s]
  std::vector<int64_t> bytes;             // by level, sum over ranks, of one step
  double compute_share = 0, exposed_share = 0;  // of a step: compute lane busy; links busy while it was not
  double tokens = 0;                      // of one step
};
MeasuredSteps measure_steps(const TrainBench& bench, Recipe recipe, const ModelSource& model, Communicator& communicator, int threads);

// One step on the same tokens, without clipping.
void train_random_step(const TrainBench& bench, Engine& engine, const ModelSource& model, Communicator& communicator, double lr);

int bench_train(const BenchOptions& options);
int bench_partition(const BenchOptions& options);
int bench_sequences(const BenchOptions& options);
int bench_layout(const BenchOptions& options);

// What benches of layouts take beside those: a file of lengths, and layouts by name. Removes these settings from `options`.
struct LengthSettings {
  std::string lengths;
  std::vector<std::string> layouts;
};
// Throws Error(Usage) without a file of lengths.
LengthSettings take_length_settings(BenchOptions& options);
// One length a line, 1 to kMostTokens; blanks behind it and lines without a length are passed over. Throws Error(Data) naming the line.
std::vector<int64_t> read_lengths(const std::string& path);

}  // namespace ballast
