#include "ballast/graph/estimate.h"

#include <cmath>
#include <limits>

namespace ballast {

double StepEstimate::communication_share() const {
  double links = 0;
  for (double seconds : level_s) links += seconds;
  const double all = links + compute_s;
  return all == 0 ? 0 : links / all;
}

StepEstimate estimate_step(const PlanSummary& summary, const Topology& topology, double flops_per_rank) {
  StepEstimate estimate;
  const auto ranks = static_cast<double>(summary.ranks);
  estimate.compute_s = summary.flops_per_step / ranks / flops_per_rank;
  for (int level = 0; level < topology.level_count(); ++level) {
    const auto bytes = static_cast<double>(summary.levels[static_cast<size_t>(level)].bytes_per_step);
    const double units = ranks / static_cast<double>(topology.group_size(level - 1));
    const std::optional<double> bandwidth = topology.level(level).bandwidth;
    estimate.level_s.push_back(bytes == 0 ? 0 : bandwidth ? bytes / units / (*bandwidth * static_cast<double>(topology.links(level))) : std::numeric_limits<double>::quiet_NaN());
  }
  return estimate;
}

double state_bytes_per_parameter(const Recipe& recipe, double growth) {
  const Topology& topology = recipe.topology;
  const int top = topology.outermost();
  const auto shards = [&](int level) { return static_cast<double>(topology.group_size(level)) * (level == top ? growth : 1); };
  const auto width = [](const CodecSpec& codec) {
    constexpr int64_t kMany = int64_t{1} << 16;  // a multiple of every block
    const int64_t elements = kMany * codec.block;
    return static_cast<double>(codec.encoded_bytes(elements)) / static_cast<double>(elements);
  };
  double bytes = 0, parameters = 0;
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    double each = width(recipe.native()) / shards(place.weights);
    if (place.secondary) each += width(place.secondary_codec) / shards(*place.secondary);
    if (place.group->trainable) {
      const bool aliased = recipe.compute == DType::Float32 && !refresh_is_lossy(recipe, place);
      each += 4 / shards(place.gradients);
      each += 4 * (static_cast<double>(recipe.optimizer_states.size()) + (aliased ? 0 : 1)) / shards(place.optimizer);
      for (const auto& hops : {reduce_hops(recipe, place), reduce_on_hops(recipe, place)}) {
        for (const HopSpec& hop : hops) {
          if (hop.feedback) each += width(CodecSpec{.name = "int8", .block = hop.codec.block}) / shards(hop.inner);
        }
      }
    }
    const auto numel = static_cast<double>(place.group->numel);
    bytes += each * numel;
    parameters += numel;
  }
  return bytes / parameters;
}

}  // namespace ballast
