#pragma once
// What a plan suggests before anything is timed: seconds on the links of each level and on the compute lane, and the largest model whose states
// fit a memory. Rough on purpose: no latency, no overlap, no contention between levels.
#include <vector>

#include "ballast/graph/summary.h"

namespace ballast {

struct StepEstimate {
  double compute_s = 0;
  std::vector<double> level_s;   // by level; NaN where the topology gives no bandwidth
  // Communication over communication and compute, as if nothing overlapped; NaN if a level that carries bytes has no bandwidth.
  double communication_share() const;
};
// `flops_per_rank`: FLOP/s of one rank. A level's bandwidth is what one unit below it sends, all its ranks together.
StepEstimate estimate_step(const PlanSummary& summary, const Topology& topology, double flops_per_rank);

// Bytes of weights, secondary weights, gradients, optimizer state and feedback that a rank holds for each parameter, on average over the groups,
// without padding. `growth` multiplies the units of the outermost level; infinity takes the limit of ever more of them.
double state_bytes_per_parameter(const Recipe& recipe, double growth = 1);

}  // namespace ballast
