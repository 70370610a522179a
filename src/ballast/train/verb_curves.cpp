#include "ballast/train/verb_curves.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "ballast/base/log.h"
#include "ballast/comm/link_probe.h"
#include "ballast/layout/cost_curves.h"
#include "ballast/train/median.h"
#include "ballast/train/process.h"
#include "ballast/train/setup.h"

namespace ballast {

namespace {

// Seconds of attention and of the linear modules of one layer for one sequence, as the engine runs them: medians of a few steps.
std::pair<double, double> measure_layer(Recipe recipe, Communicator& communicator, int threads, int64_t length) {
  const Layout layout{.name = "curves", .ranks = {{MicroBatchLayout{.pieces = {{0, 0, length, 0}}}}}};
  Engine engine(recipe, communicator, EngineOptions{.threads = threads, .optimizer = {.name = "sgd", .momentum = 0}});
  engine.set_weights([](const ParameterGroup&, int64_t begin, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * std::sin(static_cast<float>(begin + static_cast<int64_t>(i)));
  });
  const StepGraph graph = build_step(recipe, 0, layout.ranks[0], Work::Train);
  MicroBatch batch;
  batch.ids = at::zeros({length}, at::kLong);
  batch.positions = at::arange(length);
  batch.targets = at::zeros({length}, at::kLong);
  batch.starts = {0, length};
  batch.sample_keys = {0};
  StepSettings settings{.lr = 0, .trained_targets = length};
  std::vector<double> attention, linear;
  const int64_t steps = length <= 2048 ? 6 : 3;
  for (int64_t step = 0; step < steps; ++step) {
    Timeline timeline;
    engine.record_to(&timeline);
    settings.step = step + 1;
    engine.train(graph, std::span(&batch, 1), settings);
    if (step == 0) continue;   // warm-up
    double attends = 0, others = 0;
    for (const OpRecord& record : timeline.records) {
      if (record.segment < 0) continue;
      const SegmentKind kind = recipe.model.segments[static_cast<size_t>(record.segment)].kind;
      const double seconds = record.end_s - record.start_s;
      if (kind == SegmentKind::Attend) attends += seconds;
      if (kind == SegmentKind::Project || kind == SegmentKind::Finish) others += seconds;
    }
    attention.push_back(attends);
    linear.push_back(others);
  }
  return {median(attention), median(linear)};
}

}  // namespace

int doctor_curves(const CurveOptions& options) {
  const RunConfig config = parse_run_config("", "command line", options.overrides);
  require(config, {Needs::Model});
  return on_ranks(config, options.ranks, [&](const Topology& topology, Communicator& communicator, int threads) {
    const ModelSource source = open_model(config, nullptr);
    ModelConfig layer = source.config;
    layer.layers = 1;
    layer.vocab_size = 64;   // embedding and head are not measured
    layer.window.clear();
    const int64_t longest = sequence_limit(config, source.config);
    CostCurves curves;
    if (communicator.size() > 1) {
      for (const LinkFigures& level : probe_links(communicator, topology)) {
        CostCurves::Points points;
        for (const LinkRate& rate : level.by_size) points.emplace_back(static_cast<double>(rate.bytes), level.latency_s + static_cast<double>(rate.bytes) / rate.unit_bytes_per_s);
        if (!points.empty()) curves.links.emplace_back(level.name, std::move(points));
      }
    }
    if (communicator.rank() == 0) {
      Recipe recipe;
      recipe.model = describe(layer, {});
      recipe.topology = Topology::flat(1);
      recipe.placement = parse_placement_preset("ddp", recipe.topology);
      recipe.compute = config.train.precision == "bf16" ? DType::BFloat16 : DType::Float32;
      const auto alone = make_single();
      for (int64_t length = std::min<int64_t>(64, longest);; length = std::min(2 * length, longest)) {
        log_info("measuring {} tokens", length);
        const auto [attends, others] = measure_layer(recipe, *alone, threads, length);
        curves.attention.emplace_back(static_cast<double>(length), attends);
        curves.linear.emplace_back(static_cast<double>(length), others);
        if (length == longest) break;
      }
      std::cout << fmt::format("# Measured by ballast doctor --curves: {}, {}, {} thread{}{}.\n", source.text, config.train.precision, threads, threads == 1 ? "" : "s",
                               communicator.size() > 1 ? ", links over " + communicator.name() : "")
                << cost_curves_text(curves) << std::flush;
    }
    communicator.barrier("curves");
    return 0;
  });
}

}  // namespace ballast
