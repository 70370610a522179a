#include "ballast/train/banner.h"

#include <fmt/format.h>

#include "ballast/base/units.h"
#include "ballast/graph/table_split.h"

namespace ballast {

std::vector<std::string> banner_lines(const PlanSummary& summary, const Recipe& recipe, const Layout& layout, const std::string& what) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("placement {}", recipe.placement.name));
  for (const PlacementRow& row : recipe.placement.rows) lines.push_back(fmt::format("  groups {}: {}", row.pattern, describe_row(row, recipe.topology)));
  for (const std::string& note : recipe_notes(recipe)) lines.push_back("  note: " + note);
  Recipe ahead = recipe;
  ahead.prefetch = 2;
  if (!splits_table(recipe) && splits_table(ahead)) {
    lines.push_back("  note: gathers run one segment ahead, so the token table travels whole; train.prefetch of 2 or more moves it in two parts, most of it behind the blocks");
  }
  lines.push_back(fmt::format("layout {}: {} micro-batch{} per rank{}", layout.name, summary.micro_batches, summary.micro_batches == 1 ? "" : "es",
                              layout.name == what ? "" : fmt::format(" ({})", what)));
  std::string memory;
  for (const auto& state : summary.memory) {
    if (state.bytes_per_rank > 0) memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", state.state, format_bytes(state.bytes_per_rank));
  }
  lines.push_back(fmt::format("memory per rank: {} ({})", format_bytes(summary.bytes_per_rank), memory));
  std::string sent;
  for (const auto& level : summary.levels) sent += fmt::format("{}{} {}", sent.empty() ? "" : ", ", level.name, format_bytes(level.bytes_per_step));
  lines.push_back(fmt::format("bytes per step over links of each level, all ranks: {}", sent));
  return lines;
}

}  // namespace ballast
