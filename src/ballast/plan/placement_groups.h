#pragma once
// Whether a placement fits the parameter groups of a model.
#include <string>
#include <vector>

#include "ballast/plan/placement.h"

namespace ballast {

// Every parameter group has a row, and every row takes a group. Throws Error(Usage).
void check_groups(const Placement& placement, const std::vector<std::string>& groups);

}  // namespace ballast
