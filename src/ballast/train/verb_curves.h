#pragma once
// ballast doctor --curves: measures what layouts reckon with on this machine, and prints the file that data.sequence.curves names (layout/cost_curves.h).
#include <string>
#include <vector>

namespace ballast {

// Measures attention and linear modules of one layer of the configured model by length, and the links if there are several ranks.
struct CurveOptions {
  std::vector<std::string> overrides;
  int64_t ranks = 0;
};
int doctor_curves(const CurveOptions& options);

}  // namespace ballast
