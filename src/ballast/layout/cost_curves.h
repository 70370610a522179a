#pragma once
// Measured cost curves as a YAML file, written by `ballast doctor --curves`:
//   attention: [[1024, 0.0031], [4096, 0.041]]       # causal sequence of so many tokens, one layer, forward and backward: seconds
//   linear: [[1024, 0.0102], [4096, 0.0406]]         # so many tokens through the other modules of one layer, forward and backward: seconds
//   links: {gpu: [[65536, 1.2e-05]], node: [[65536, 4.0e-05]]}   # so many bytes from a unit below the level to its neighbour: seconds
// Any of the three may be missing: what it would say stays as it was.
#include <string>
#include <utility>
#include <vector>

#include "ballast/layout/sequence_cost.h"

namespace ballast {

struct CostCurves {
  using Points = std::vector<std::pair<double, double>>;
  Points attention, linear;
  std::vector<std::pair<std::string, Points>> links;   // by level name
};

std::string cost_curves_text(const CostCurves& curves);
// Throws Error(Usage) naming file, line and what was expected for anything that is not such a file.
CostCurves parse_cost_curves(const std::string& text, const std::string& source);
// Puts measured curves in the place of rates. Throws Error(Usage) for a level that the topology does not have.
void apply(const CostCurves& curves, const Topology& topology, SequenceCost& cost);

}  // namespace ballast
