// Steps of context parallelism over two nodes with several links each, as token buckets: hops of rings sent directly and spread over the links.
// Arguments: links, and how many times slower a link between nodes is than one within. Real time, whatever the cores do meanwhile.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "ballast/comm/communicator.h"
#include "ballast/engine/engine.h"
#include "ballast/layout/policies.h"

namespace ballast {
namespace {

void ring_over_nodes(benchmark::State& state, bool route) {
  const int64_t links = state.range(0);
  const double within = 20e6, between = within / static_cast<double>(state.range(1));
  ModelConfig model = preset("gpt2-tiny");   // 256 wide; little beside attention
  model.vocab_size = 64;
  model.layers = 2;
  model.intermediate = 64;
  model.max_positions = 4096;
  Recipe recipe;
  recipe.model = describe(model, {});
  recipe.topology = Topology({{"gpu", 4, within, {}, 1}, {"node", 2, between, {}, links}});
  recipe.placement = parse_placement_preset("ddp", recipe.topology);
  const auto ranks = static_cast<size_t>(recipe.topology.ranks());
  CommunicatorOptions options;
  options.limit_links = true;
  auto communicators = make_in_process(recipe.topology, options);
  LayoutLimits limits{.ranks = 8, .micro_tokens = 256, .topology = recipe.topology};
  limits.options.route = route;
  const Layout layout = make_layout("context-parallel", std::vector<SampleRef>{{1, 2048}}, limits);
  std::vector<std::unique_ptr<Engine>> engines(ranks);
  std::vector<StepGraph> graphs;
  std::vector<std::vector<MicroBatch>> batches(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    engines[r] = std::make_unique<Engine>(recipe, *communicators[r], EngineOptions{});
    engines[r]->set_weights([](const ParameterGroup&, int64_t, std::span<float> values) { std::fill(values.begin(), values.end(), 0.01f); });
    graphs.push_back(build_step(recipe, static_cast<int64_t>(r), layout.ranks[r], Work::Evaluate));
    for (const MicroBatchLayout& batch : layout.ranks[r]) {
      const int64_t slots = batch.slots();
      MicroBatch micro;
      micro.ids = at::zeros({slots}, at::kLong);
      micro.positions = at::arange(slots);
      micro.targets = at::zeros({slots}, at::kLong);
      micro.starts = {0, slots};
      batches[r].push_back(std::move(micro));
    }
  }
  const auto step = [&] {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks; ++r) threads.emplace_back([&, r] { engines[r]->evaluate(graphs[r], batches[r]); });
    for (std::thread& thread : threads) thread.join();
  };
  step();
  for (auto _ : state) {
    const auto began = std::chrono::steady_clock::now();
    step();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
}

void arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"links", "slower"})->Args({2, 2})->Args({2, 8})->Args({2, 16})->Args({4, 2})->Args({4, 8})->Args({4, 16})->UseManualTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(ring_over_nodes, direct, false)->Apply(arguments);
BENCHMARK_CAPTURE(ring_over_nodes, routed, true)->Apply(arguments);

}  // namespace
}  // namespace ballast
