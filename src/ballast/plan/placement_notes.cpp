// What a placement means on a topology that its table does not show: hops that fall away, and states and codecs that do not pay on these links.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ballast/plan/placement.h"

namespace ballast {

namespace {

constexpr double kEqualLinks = 1.5;  // rates within this factor count as equal

// Why no level is slower than another, or "".
std::string equal_links(const Topology& topology) {
  std::vector<std::string> levels;
  std::vector<double> rates;
  for (const Level& level : topology.levels()) {
    if (level.size == 1) continue;
    levels.push_back(level.name);
    if (level.bandwidth) rates.push_back(*level.bandwidth);
  }
  if (levels.size() <= 1) return levels.empty() ? "there is one rank" : fmt::format("only one level, {}, has more than one unit", levels.front());
  if (rates.size() != levels.size()) return "";
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return *most <= *least * kEqualLinks ? "all levels have links of about one rate" : "";
}

bool is_coarse(const CodecChoice& choice) { return !choice.native && choice.codec.name == "int4"; }

}  // namespace

std::vector<std::string> placement_notes(const Placement& placement, const Topology& topology) {
  std::vector<std::string> notes;
  const auto note = [&](std::string text) {
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
  };
  const std::string equal = equal_links(topology);
  for (const PlacementRow& row : placement.rows) {
    const std::string of = row.pattern == "*" ? "" : fmt::format(" (groups {})", row.pattern);
    bool quantised = false;
    for (size_t m = 0; m < row.wire.size(); ++m) {
      const auto movement = static_cast<Movement>(m);
      const CodecSpec native{.name = "native"};
      const std::vector<HopSpec> hops = row.hops(movement, row.inner_of(movement), row.outer_of(movement, topology), topology, native, native);
      const std::vector<WireEntry>& entries = row.wire[m];
      const auto lossy = std::count_if(entries.begin(), entries.end(), [](const WireEntry& entry) { return !entry.codec.native && entry.codec.codec.blocked(); });
      quantised |= lossy > 0 && !hops.empty();
      if (hops.empty() && lossy > 0) {
        note(fmt::format("wire.{}{} has nothing to encode: the movement crosses no link", name_of(movement), of));
      } else if (entries.size() > hops.size() && lossy > 0) {
        note(fmt::format("wire.{}{}: {} of {} listed hops fall away, their levels have one unit each", name_of(movement), of, entries.size() - hops.size(), entries.size()));
      }
      const bool of_weights = movement == Movement::ForwardGather || movement == Movement::BackwardGather || movement == Movement::Refresh;
      if (of_weights && std::any_of(entries.begin(), entries.end(), [](const WireEntry& entry) { return is_coarse(entry.codec); })) {
        note(fmt::format("wire.{}{}: weights as int4 differ by up to 7 % of their block's largest value; int8 by 0.4 %", name_of(movement), of));
      }
    }
    if (row.secondary && is_coarse(row.secondary->storage)) note(fmt::format("secondary{}: the backward will see weights that differ by up to 7 % of their block's largest value", of));
    if (row.secondary && topology.group_size(row.secondary->level) >= topology.group_size(row.weights.level) && row.secondary->storage.native) {
      note(fmt::format("secondary weights over {}{} bring nothing: the weights are cut no further, over {}", topology.name_of(row.secondary->level), of, topology.name_of(row.weights.level)));
    }
    if (!equal.empty() && (row.secondary || quantised)) {
      note(fmt::format("{} on these links: {}", row.secondary && quantised ? "secondary weights and quantised hops do not pay" : row.secondary ? "secondary weights do not pay" : "quantised hops do not pay", equal));
    }
  }
  return notes;
}

}  // namespace ballast
