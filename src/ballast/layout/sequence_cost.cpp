#include "ballast/layout/sequence_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ballast/base/error.h"
#include "ballast/plan/attention.h"

namespace ballast {

Curve Curve::rate(double per_second, double start_s) {
  Curve curve;
  curve.points_ = {{0.0, start_s}};
  curve.slope_ = 1 / per_second;
  return curve;
}

Curve::Curve(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {
  if (points_.empty()) throw Error(ErrorKind::Usage, "a cost curve has no points");
  for (size_t i = 0; i < points_.size(); ++i) {
    const auto [amount, seconds] = points_[i];
    if (!std::isfinite(amount) || !std::isfinite(seconds) || amount <= 0 || seconds < 0 || (i > 0 && amount <= points_[i - 1].first)) {
      throw Error(ErrorKind::Usage, "a point of a cost curve is out of order")
          .found(fmt::format("point {}: ({}, {})", i, amount, seconds))
          .expected("growing amounts above 0, seconds of 0 or more");
    }
  }
  for (size_t i = 1; i < points_.size(); ++i) points_[i].second = std::max(points_[i].second, points_[i - 1].second);
  double start = 0;
  if (points_.size() > 1) {
    const auto [x0, y0] = points_[0];
    const auto [x1, y1] = points_[1];
    start = std::clamp(y0 - x0 * (y1 - y0) / (x1 - x0), 0.0, y0);
  }
  slope_ = points_.back().second / points_.back().first;
  points_.insert(points_.begin(), {0.0, start});
}

double Curve::at(double amount) const {
  if (amount <= 0 || points_.empty()) return 0;
  const auto after = std::upper_bound(points_.begin(), points_.end(), amount, [](double x, const auto& point) { return x < point.first; });
  const auto [x0, y0] = *std::prev(after);
  if (after == points_.end()) return y0 + (amount - x0) * slope_;
  return y0 + (amount - x0) * (after->second - y0) / (after->first - x0);
}

double Curve::least_rate(double amount) const {
  if (amount <= 0) return 0;
  double least = at(amount) / amount;   // between two points seconds per amount only rise or only fall
  for (const auto& [x, y] : points_) if (x > 0 && x < amount) least = std::min(least, y / x);
  return least;
}

int64_t SequenceCost::layer_count() const {
  int64_t count = 0;
  for (const WindowLayers& group : layers) count += group.layers;
  return count;
}

double SequenceCost::attention_s(int64_t length, int64_t members) const {
  double seconds = 0;
  for (const WindowLayers& group : layers) {
    seconds += static_cast<double>(group.layers) * attention.at(causal_pairs(length, group.window) / static_cast<double>(members));
  }
  return seconds;
}

double SequenceCost::least_attention_s(int64_t length) const {
  double seconds = 0;
  for (const WindowLayers& group : layers) {
    const double pairs = causal_pairs(length, group.window);
    seconds += static_cast<double>(group.layers) * pairs * attention.least_rate(pairs);
  }
  return seconds;
}

double SequenceCost::linear_s(double tokens) const { return static_cast<double>(layer_count()) * linear.at(tokens); }

double SequenceCost::link_s(int level, double bytes) const {
  return level < 0 || static_cast<size_t>(level) >= links.size() ? 0 : links[static_cast<size_t>(level)].at(bytes);
}

SequenceCost sequence_cost(const ModelConfig& config, const Topology& topology, double flops, int64_t element_bytes) {
  SequenceCost cost;
  std::map<int64_t, int64_t> windows;
  for (int64_t layer = 0; layer < config.layers; ++layer) ++windows[config.window_of(layer)];
  cost.layers.clear();
  for (const auto& [window, count] : windows) cost.layers.push_back({window, count});
  const auto hidden = static_cast<double>(config.hidden), query = static_cast<double>(config.query_width()), kv = static_cast<double>(config.kv_width());
  const double matrices = hidden * (2 * query + 2 * kv) + hidden * static_cast<double>(config.intermediate) * (config.gated ? 3 : 2);
  cost.attention = Curve::rate(flops / (12 * query));
  cost.linear = Curve::rate(flops / (6 * matrices));
  cost.query_bytes = config.query_width() * element_bytes, cost.key_bytes = 2 * config.kv_width() * element_bytes;
  cost.query_sum_bytes = config.query_width() * 4, cost.key_sum_bytes = 2 * config.kv_width() * 4, cost.head_bytes = config.heads * 4;
  for (int level = 0; level < topology.level_count(); ++level) {
    const Level& link = topology.level(level);
    cost.links.push_back(link.bandwidth ? Curve::rate(*link.bandwidth, link.latency.value_or(0)) : Curve());
  }
  return cost;
}

}  // namespace ballast
