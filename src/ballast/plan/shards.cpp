#include "ballast/plan/shards.h"

namespace ballast {

Range GroupPlace::shard(const Topology& topology, int64_t rank, int level) const {
  const int64_t count = padded / topology.group_size(level);
  return {topology.shard_index(rank, level) * count, count};
}

namespace {

// The innermost level with the same group: levels of size 1 add nothing.
int normalised(const Topology& topology, int level) {
  while (level >= 0 && topology.level(level).size == 1) --level;
  return level;
}

bool refresh_is_lossless(const Recipe& recipe, const PlacementRow& row) {
  for (const CodecChoice& choice : row.wire[static_cast<size_t>(Movement::Refresh)]) {
    if (!(choice.resolve(recipe.native()) == recipe.native())) return false;
  }
  return true;
}

}  // namespace

GroupPlace place_group(const Recipe& recipe, size_t index) {
  const Topology& topology = recipe.topology;
  GroupPlace place;
  place.group = &recipe.model.groups[index];
  place.row = &recipe.placement.row_for(place.group->name);
  place.weights = normalised(topology, place.row->weights.level);
  place.gradients = normalised(topology, place.row->gradients.level);
  place.optimizer = normalised(topology, place.row->optimizer.level);
  const int64_t unit = kUnit * topology.ranks();
  place.padded = (place.group->numel + unit - 1) / unit * unit;
  return place;
}

PersistentState persistent_state(const Recipe& recipe, int64_t rank) {
  PersistentState state;
  const auto add = [&state](std::string name, StateKind kind, DType dtype, int64_t elements) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.state = kind;
    buffer.persistent = true;
    buffer.dtype = dtype;
    buffer.shape = {elements};
    state.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(state.buffers.size() - 1);
  };
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    const std::string& name = place.group->name;
    const Range weights = place.shard(recipe.topology, rank, place.weights);
    const Range optimizer = place.shard(recipe.topology, rank, place.optimizer);
    GroupState group;
    group.weights = add("weights." + name, StateKind::Weights, recipe.compute, weights.count);
    if (place.group->trainable) {
      group.master = add("master." + name, StateKind::Optimizer, DType::Float32, optimizer.count);
      if (recipe.compute == DType::Float32 && refresh_is_lossless(recipe, *place.row)) {
        state.buffers.back().alias_of = group.weights;
        state.buffers.back().alias_offset = optimizer.begin - weights.begin;
      }
      for (const std::string& one : recipe.optimizer_states) {
        group.optimizer.push_back(add(one + "." + name, StateKind::Optimizer, DType::Float32, optimizer.count));
      }
      group.gradients = add("gradients." + name, StateKind::Gradients, DType::Float32, place.shard(recipe.topology, rank, place.gradients).count);
    }
    state.groups.push_back(std::move(group));
  }
  return state;
}

}  // namespace ballast
