#include "ballast/plan/placement_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "ballast/base/error.h"

namespace ballast {

void check_groups(const Placement& placement, const std::vector<std::string>& groups) {
  std::vector<const PlacementRow*> taken;
  for (const std::string& group : groups) taken.push_back(&placement.row_for(group));
  for (const PlacementRow& row : placement.rows) {
    if (std::find(taken.begin(), taken.end(), &row) != taken.end()) continue;
    const bool matches = std::any_of(groups.begin(), groups.end(), [&](const std::string& group) { return fnmatch(row.pattern.c_str(), group.c_str(), 0) == 0; });
    throw Error(ErrorKind::Usage, matches ? "earlier rows take every parameter group of this placement row" : "a placement row matches no parameter group")
        .at("placement", fmt::format("groups {}", row.pattern))
        .expected(fmt::format("a glob over {}", fmt::join(groups, ", ")))
        .cure(matches ? "write rows of fewer groups first: the first that matches counts" : "correct the glob, or leave the row out");
  }
}

}  // namespace ballast
