#pragma once
// Where the shards of a parameter group lie: padding, nested ranges and the persistent buffers that follow from a placement.
#include <cstdint>
#include <string>
#include <vector>

#include "ballast/plan/dtype.h"
#include "ballast/plan/model_shape.h"
#include "ballast/plan/placement.h"
#include "ballast/plan/step_graph.h"
#include "ballast/plan/topology.h"

namespace ballast {

// What a step is built from; everything that does not change during a run.
struct Recipe {
  ModelShape model;
  Topology topology{{Level{"node", 1, {}, {}}}};
  Placement placement;
  DType compute = DType::Float32;                // dtype of gathered weights, activations and the native wire
  std::vector<std::string> optimizer_states;     // fp32, one element per parameter each: exp_avg, exp_avg_sq
  int64_t recompute_every = 0;                   // 0 none, 1 every block, k: every k-th block recomputes its activations in the backward
  int64_t prefetch = 1;                          // how many uses of gathered weights ahead of the compute lane a gather may start
  CodecSpec native() const { return CodecSpec{compute == DType::Float32 ? "fp32" : "bf16", 1}; }
};

// Elements [begin, begin + count) of a group's padded flat buffer.
struct Range {
  int64_t begin = 0, count = 0;
};

// One group under its placement. Levels are normalised: a level whose group is one rank is kSelf.
struct GroupPlace {
  const ParameterGroup* group = nullptr;
  const PlacementRow* row = nullptr;
  int weights = kSelf, gradients = kSelf, optimizer = kSelf;
  int64_t padded = 0;   // group->numel rounded up to kUnit * ranks
  // The rank's shard over group(level); nested: a shard over an outer level lies inside the one over an inner level.
  Range shard(const Topology& topology, int64_t rank, int level) const;
};
GroupPlace place_group(const Recipe& recipe, size_t group);

// Ids of the persistent buffers of one group; kNoBuffer where it has none (frozen groups have weights only).
struct GroupState {
  BufferId weights = kNoBuffer;     // [shard(weights)] compute dtype
  BufferId master = kNoBuffer;      // [shard(optimizer)] fp32; an alias into weights where those are fp32
  std::vector<BufferId> optimizer;  // [shard(optimizer)] fp32 each, in the order of Recipe::optimizer_states
  BufferId gradients = kNoBuffer;   // [shard(gradients)] fp32
};
struct PersistentState {
  std::vector<Buffer> buffers;
  std::vector<GroupState> groups;
};
PersistentState persistent_state(const Recipe& recipe, int64_t rank);

}  // namespace ballast
