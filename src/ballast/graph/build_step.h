#pragma once
// Lowers a recipe and one rank's micro-batches to a StepGraph. One set of rules for every placement (docs/architecture.md):
// refresh, forward gathers, backward gathers, reduction to the gradient shard, reduction on to the optimizer shard, update.
#include <span>

#include "ballast/graph/shards.h"
#include "ballast/graph/table_split.h"
#include "ballast/layout/layout.h"

namespace ballast {

enum class Work : uint8_t {
  Train,     // one optimizer step over all micro-batches
  Evaluate,  // losses only
  Collect    // every group in full, fp32 where there is a master, handed to a sink group by group (micro-batches are ignored)
};

// The graph of `rank`. Pure: the same input gives the same graph; all ranks get the same operations in the same order. With the tokens of a
// training step its token table is refreshed and summed in two parts; which they are changes neither the operations nor the memory.
StepGraph build_step(const Recipe& recipe, int64_t rank, std::span<const MicroBatchLayout> micro_batches, Work work, const StepTokens* tokens = nullptr);

}  // namespace ballast
