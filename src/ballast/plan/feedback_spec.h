#pragma once
// Error feedback of a lossy reduction (LoCo, arXiv 2407.04480): what an encoding lost is added to the next one.
#include <cstdint>

namespace ballast {

struct FeedbackSpec {
  double beta = 0.8;     // share of the old error that is kept
  int64_t reset = 1024;  // steps after which all buffers start again at zero, together
  bool operator==(const FeedbackSpec&) const = default;
};

}  // namespace ballast
