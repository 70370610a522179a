// Planning time of layouts: 4,096 sequences of a heavy-tailed list over 1,024 ranks, smaller machines, and fast ranks whose links and memory are scarce.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>

#include "ballast/layout/policies.h"
#include "ballast/layout/report.h"

namespace {

std::vector<ballast::SampleRef> heavy_tailed(int64_t count) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> lengths(std::log(900.0), 1.3);
  std::vector<ballast::SampleRef> samples;
  for (int64_t i = 0; i < count; ++i) samples.push_back({static_cast<uint64_t>(i), 1 + std::min<int64_t>(65536, static_cast<int64_t>(lengths(random)))});
  return samples;
}

// Arguments: sequences, ranks of a node, nodes, links (0: free, 1: 200 and 100 GB/s; 2: 200 and 25 GB/s, with ranks of 180 TFLOP/s and no slot to spare).
void plan(benchmark::State& state, const char* policy) {
  const auto samples = heavy_tailed(state.range(0));
  int64_t total = 0;
  for (const auto& sample : samples) total += sample.length;
  ballast::LayoutLimits limits{.ranks = state.range(1) * state.range(2)};
  limits.micro_tokens = total * 5 / 4 / limits.ranks;
  std::vector<ballast::Level> levels = {{"gpu", state.range(1), 200e9, 5e-6}, {"node", state.range(2), 100e9, 1e-5}};
  limits.topology = ballast::Topology(levels);
  if (state.range(3) == 1) limits.cost.links = {ballast::Curve::rate(200e9, 5e-6), ballast::Curve::rate(100e9, 1e-5)};
  if (state.range(3) == 2) {
    limits.micro_tokens = total / limits.ranks + 2;
    limits.cost.attention = ballast::Curve::rate(180e12 / (12 * 768.0));
    limits.cost.linear = ballast::Curve::rate(180e12 / (72 * 768.0 * 768.0));
    limits.cost.links = {ballast::Curve::rate(200e9), ballast::Curve::rate(25e9)};
  }
  ballast::Layout layout;
  for (auto _ : state) {
    layout = ballast::make_layout(policy, samples, limits);
    benchmark::DoNotOptimize(layout);
  }
  state.counters["token imbalance"] = describe_layout(layout, limits).token_imbalance;
}

}  // namespace

BENCHMARK_CAPTURE(plan, balanced, "balanced")->Args({4096, 8, 128, 0})->Args({4096, 8, 128, 1})->Args({2048, 8, 128, 2})->Args({128, 8, 8, 2})->Args({512, 8, 8, 1})->Args({64, 4, 1, 1})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, packed, "packed")->Args({4096, 8, 8, 0})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, context_parallel, "context-parallel")->Args({512, 8, 8, 1})->Unit(benchmark::kMillisecond);

