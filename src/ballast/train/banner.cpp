#include "ballast/train/banner.h"

#include <fmt/format.h>

namespace ballast {

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / static_cast<double>(int64_t{1} << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", value / (1 << 10));
  return fmt::format("{} B", bytes);
}

std::vector<std::string> banner_lines(const PlanSummary& summary, const Recipe& recipe, const Layout& layout) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("placement {}", recipe.placement.name));
  for (const PlacementRow& row : recipe.placement.rows) lines.push_back(fmt::format("  groups {}: {}", row.pattern, describe_row(row, recipe.topology)));
  for (const std::string& note : placement_notes(recipe.placement, recipe.topology)) lines.push_back("  note: " + note);
  lines.push_back(fmt::format("layout {}: {} micro-batch{} per rank", layout.name, summary.micro_batches, summary.micro_batches == 1 ? "" : "es"));
  std::string memory;
  for (const auto& state : summary.memory) {
    if (state.bytes_per_rank > 0) memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", state.state, bytes_text(state.bytes_per_rank));
  }
  lines.push_back(fmt::format("memory per rank: {} ({})", bytes_text(summary.bytes_per_rank), memory));
  std::string sent;
  for (const auto& level : summary.levels) sent += fmt::format("{}{} {}", sent.empty() ? "" : ", ", level.name, bytes_text(level.bytes_per_step));
  lines.push_back(fmt::format("bytes per step over links of each level, all ranks: {}", sent));
  return lines;
}

}  // namespace ballast
