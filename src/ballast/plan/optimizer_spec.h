#pragma once
// An optimizer as the plan knows it: its name, its numbers, and which states it keeps per weight. Updating is optim/'s.
#include <cstdint>
#include <string>
#include <vector>

#include "ballast/plan/dtype.h"

namespace ballast {

// One state: as many elements as the optimizer shard of its group, zero at the start.
struct OptimizerState {
  std::string name;  // also its name in checkpoints
  DType dtype = DType::Float32;
  bool operator==(const OptimizerState&) const = default;
};

struct OptimizerSpec {
  std::string name = "adamw";  // adamw, sgd, lion
  double beta1 = 0.9;          // adamw, lion
  double beta2 = 0.95;         // adamw, lion
  double eps = 1e-8;           // adamw
  double weight_decay = 0;     // adamw, lion: decoupled (w -= lr * decay * w); sgd: added to the gradient
  double momentum = 0.9;       // sgd; 0 keeps no state
  bool operator==(const OptimizerSpec&) const = default;
};

// adamw: exp_avg, exp_avg_sq; lion: exp_avg; sgd: momentum (none if momentum is 0). The fp32 master is not among them.
// Throws Error(Usage) for an unknown name.
std::vector<OptimizerState> optimizer_state_specs(const OptimizerSpec& spec);
// Bytes of all states per element, the fp32 master not counted.
int64_t optimizer_state_bytes(const OptimizerSpec& spec);
// Throws Error(Usage) naming the key whose value is out of range.
void check_optimizer(const OptimizerSpec& spec);

}  // namespace ballast
