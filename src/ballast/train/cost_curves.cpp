#include "ballast/train/cost_curves.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/base/yaml.h"
#include "ballast/comm/link_probe.h"
#include "ballast/train/machine.h"
#include "ballast/train/process.h"
#include "ballast/train/setup.h"

namespace ballast {

namespace {

using Points = std::vector<std::pair<double, double>>;

double number_of(const YamlNode& node, const std::string& place) {
  double value = 0;
  std::istringstream text(node.scalar);
  if (!node.is_scalar() || !(text >> value) || !text.eof() || !std::isfinite(value)) throw config_error(node.mark, place, "not a number").found(node.describe()).expected("a number");
  return value;
}

Curve curve_of(const YamlNode& node, const std::string& place) {
  Points points;
  if (!node.is_list()) throw config_error(node.mark, place, "not a list of points").found(node.describe()).expected("[[amount, seconds], ...]");
  for (const YamlNode& item : node.items) {
    if (!item.is_list() || item.items.size() != 2) throw config_error(item.mark, place, "not a point").found(item.describe()).expected("[amount, seconds]");
    points.emplace_back(number_of(item.items[0], place), number_of(item.items[1], place));
  }
  try {
    return Curve(std::move(points));
  } catch (Error& error) {
    throw std::move(error).at(place);
  }
}

std::string text_of(const Points& points) {
  std::string text;
  for (const auto& [amount, seconds] : points) text += fmt::format("{}[{:.6g}, {:.4g}]", text.empty() ? "" : ", ", amount, seconds);
  return "[" + text + "]";
}

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
  const auto middle = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  return {middle(attention), middle(linear)};
}

// A curve must not fall; a point that noise put below the one before it takes that one's seconds.
Points rising(Points points) {
  for (size_t i = 1; i < points.size(); ++i) points[i].second = std::max(points[i].second, points[i - 1].second);
  return points;
}

}  // namespace

void read_cost_curves(const std::string& path, const Topology& topology, SequenceCost& cost) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::Data, "the file of costs cannot be read").at("data.sequence.curves").found(path).cure("write one with 'ballast doctor --curves', or leave the key away");
  std::ostringstream bytes;
  bytes << file.rdbuf();
  const YamlNode root = parse_yaml(bytes.str(), path);
  const YamlNode* curves = root.is_map() ? root.find("curves") : nullptr;
  if (curves == nullptr || !curves->is_map()) throw config_error(root.mark, "curves", "no costs in the file").found(root.describe()).expected("curves: {attention: [[pairs, seconds], ...], linear: ..., links: ...}");
  for (const YamlEntry& entry : curves->entries) {
    if (entry.key == "attention") {
      cost.attention = curve_of(entry.value, "curves.attention");
    } else if (entry.key == "linear") {
      cost.linear = curve_of(entry.value, "curves.linear");
    } else if (entry.key == "links") {
      if (!entry.value.is_map()) throw config_error(entry.value.mark, "curves.links", "not a map of levels").found(entry.value.describe()).expected("{node: [[bytes, seconds], ...]}");
      for (const YamlEntry& link : entry.value.entries) cost.links[static_cast<size_t>(std::max(0, topology.find(link.key)))] = curve_of(link.value, "curves.links." + printable(link.key));
    } else {
      throw config_error(entry.value.mark, "curves." + printable(entry.key), "unknown key").expected("attention, linear or links");
    }
  }
}

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
    std::string links;
    if (communicator.size() > 1) {
      for (const LinkFigures& level : probe_links(communicator, topology)) {
        Points points;
        for (const LinkRate& rate : level.by_size) points.emplace_back(static_cast<double>(rate.bytes), level.latency_s + static_cast<double>(rate.bytes) / rate.unit_bytes_per_s);
        if (!points.empty()) links += fmt::format("{}{}: {}", links.empty() ? "" : ", ", level.name, text_of(rising(points)));
      }
    }
    if (communicator.rank() == 0) {
      Recipe recipe;
      recipe.model = describe(layer, {});
      recipe.topology = Topology::flat(1);
      recipe.placement = parse_placement_preset("ddp", recipe.topology);
      recipe.compute = config.train.precision == "bf16" ? DType::BFloat16 : DType::Float32;
      const auto alone = make_single();
      Points attention, linear;
      for (int64_t length = std::min<int64_t>(64, longest);; length = std::min(2 * length, longest)) {
        log_info("measuring {} tokens", length);
        const auto [attends, others] = measure_layer(recipe, *alone, threads, length);
        const auto tokens = static_cast<double>(length);
        attention.emplace_back(tokens * (tokens + 1) / 2, attends);
        linear.emplace_back(tokens, others);
        if (length == longest) break;
      }
      std::cout << fmt::format("# Measured by ballast doctor --curves: {}, {}, {} thread{}{}; seconds of one layer, forward and backward.\ncurves:\n  attention: {}\n  linear: {}\n", source.text,
                               config.train.precision, threads, threads == 1 ? "" : "s", communicator.size() > 1 ? ", links over " + communicator.name() : "", text_of(rising(attention)), text_of(rising(linear)));
      if (!links.empty()) std::cout << fmt::format("  links: {{{}}}\n", links);
      std::cout << std::flush;
    }
    communicator.barrier("curves");
    return 0;
  });
}

}  // namespace ballast
