#pragma once
// Costs by length as a file: what `ballast doctor --curves` measures on this machine and what layouts reckon with where data.sequence.curves names it.
//
//   curves:
//     attention: [[visible pairs, seconds], ...]     of one layer, forward and backward
//     linear: [[tokens, seconds], ...]               of one layer, forward and backward
//     links: {node: [[bytes, seconds], ...]}         one message of a rank; levels that are not named keep the topology's figures
#include <string>
#include <vector>

#include "ballast/plan/model_config.h"
#include "ballast/plan/sequence_cost.h"
#include "ballast/train/commands.h"

namespace ballast {

// Replaces what the file names. Throws Error(Usage) with place for what is no such file, and Error(Data) if it cannot be read.
void read_cost_curves(const std::string& path, const Topology& topology, SequenceCost& cost);

// Measures attention and linear modules of one layer of the configured model, and the links if there are several ranks; prints the file.
struct CurveOptions {
  std::vector<std::string> overrides;
  int64_t ranks = 0;
};
int doctor_curves(const CurveOptions& options);

}  // namespace ballast
