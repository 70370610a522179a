#pragma once
// Where the shards of a parameter group lie: padding, nested ranges and the persistent buffers that follow from a placement.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/graph/step_graph.h"
#include "ballast/plan/dtype.h"
#include "ballast/plan/model_shape.h"
#include "ballast/plan/placement.h"
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
  int64_t prefetch = 1;                          // how many uses of gathered weights ahead of the compute lane a gather may start; above 1 link lanes have buffers apart
  CodecSpec native() const { return {.name = compute == DType::Float32 ? "fp32" : "bf16"}; }
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
  std::optional<int> secondary;  // where the row asks for one and the weights are cut at all
  CodecSpec secondary_codec;
  int64_t unit = kUnit; // every shard is whole units: blocks of every codec of the row, and kUnit
  int64_t padded = 0;   // group->numel rounded up so that it is
  // The rank's shard over group(level); nested: a shard over an outer level lies inside the one over an inner level.
  Range shard(const Topology& topology, int64_t rank, int level) const;
};
GroupPlace place_group(const Recipe& recipe, size_t group);
// What a user should know before running: the notes on the placement, and padding of more than a few percent.
std::vector<std::string> recipe_notes(const Recipe& recipe);
// The hops of a group's movements under the recipe, innermost first.
std::vector<HopSpec> gather_hops(const Recipe& recipe, const GroupPlace& place, Movement movement);
std::vector<HopSpec> reduce_hops(const Recipe& recipe, const GroupPlace& place);     // to the gradient shard, per micro-batch
std::vector<HopSpec> reduce_on_hops(const Recipe& recipe, const GroupPlace& place);  // from there over all outer levels, once per step
// The refresh changes the weights: they are kept beside the master then, and come from it in every step.
bool refresh_is_lossy(const Recipe& recipe, const GroupPlace& place);

// Ids of the persistent buffers of one group; kNoBuffer where it has none (frozen groups have weights only).
struct GroupState {
  BufferId weights = kNoBuffer;     // [shard(weights)] compute dtype
  BufferId master = kNoBuffer;      // [shard(optimizer)] fp32; an alias into weights where those are fp32
  std::vector<BufferId> optimizer;  // [shard(optimizer)] fp32 each, in the order of Recipe::optimizer_states
  BufferId gradients = kNoBuffer;   // [shard(gradients)] fp32
  BufferId secondary = kNoBuffer;   // [shard(secondary)] in its codec
  std::vector<BufferId> feedback;   // bytes; one for each hop of reduce_hops, then of reduce_on_hops, kNoBuffer where it has none
};
struct PersistentState {
  std::vector<Buffer> buffers;
  std::vector<GroupState> groups;
};
PersistentState persistent_state(const Recipe& recipe, int64_t rank);

// A buffer for `elements` numbers encoded by `codec`: of a dtype where the codec is one, else bytes.
Buffer encoded_buffer(std::string name, const CodecSpec& codec, int64_t elements);

}  // namespace ballast
