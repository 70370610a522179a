#pragma once
// A plan in words: what the start of a run and `ballast plan` print.
#include <string>
#include <vector>

#include "ballast/graph/summary.h"

namespace ballast {

// what: whose layout it is, "step 1" or "assumed".
std::vector<std::string> banner_lines(const PlanSummary& summary, const Recipe& recipe, const Layout& layout, const std::string& what);

}  // namespace ballast
