#include "ballast/graph/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ballast/graph/table_split.h"

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

int64_t least_common_multiple(int64_t unit, const CodecSpec& codec) { return codec.blocked() ? std::lcm(unit, codec.block) : unit; }

int64_t shard_unit(const PlacementRow& row) {
  int64_t unit = kUnit;
  for (const auto& entries : row.wire) {
    for (const WireEntry& entry : entries) unit = least_common_multiple(unit, entry.codec.codec);
  }
  return row.secondary ? least_common_multiple(unit, row.secondary->storage.codec) : unit;
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
  if (place.row->secondary && place.weights != kSelf) {
    place.secondary = normalised(topology, place.row->secondary->level);
    place.secondary_codec = place.row->secondary->storage.resolve(recipe.native());
  }
  place.unit = shard_unit(*place.row);
  const int64_t all = place.unit * topology.ranks();
  place.padded = (place.group->numel + all - 1) / all * all;
  return place;
}

std::vector<std::string> recipe_notes(const Recipe& recipe) {
  constexpr double kMuch = 0.05;
  std::vector<std::string> notes = placement_notes(recipe.placement, recipe.topology);
  int64_t elements = 0, padded = 0, unit = 0;
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    elements += place.group->numel;
    padded += place.padded;
    unit = std::max(unit, place.unit);
  }
  const double share = static_cast<double>(padded - elements) / static_cast<double>(std::max<int64_t>(1, elements));
  if (share > kMuch) {
    notes.push_back(fmt::format("padding adds {:.0f} % to weights and messages: every group is padded to {} ranks x {} elements, whole blocks; smaller blocks or fewer ranks pad less",
                                100 * share, recipe.topology.ranks(), unit));
  }
  for (std::string& note : table_split_notes(recipe)) notes.push_back(std::move(note));
  return notes;
}

std::vector<HopSpec> gather_hops(const Recipe& recipe, const GroupPlace& place, Movement movement) {
  const CodecSpec native = recipe.native();
  if (movement == Movement::Refresh) return place.row->hops(movement, place.weights, place.optimizer, recipe.topology, native, native);
  if (movement == Movement::BackwardGather && place.secondary) {
    return place.row->hops(movement, kSelf, *place.secondary, recipe.topology, native, place.secondary_codec);
  }
  return place.row->hops(movement, kSelf, place.weights, recipe.topology, native, native);
}

std::vector<HopSpec> reduce_hops(const Recipe& recipe, const GroupPlace& place) {
  return place.row->hops(Movement::Reduce, kSelf, place.gradients, recipe.topology, recipe.native(), recipe.native());
}

std::vector<HopSpec> reduce_on_hops(const Recipe& recipe, const GroupPlace& place) {
  return place.row->hops(Movement::ReduceOn, place.gradients, recipe.topology.outermost(), recipe.topology, recipe.native(), recipe.native());
}

bool refresh_is_lossy(const Recipe& recipe, const GroupPlace& place) {
  const std::vector<HopSpec> hops = gather_hops(recipe, place, Movement::Refresh);
  return std::any_of(hops.begin(), hops.end(), [&](const HopSpec& hop) { return hop.codec != recipe.native(); });
}

Buffer encoded_buffer(std::string name, const CodecSpec& codec, int64_t elements) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.dtype = codec.name == "fp32" ? DType::Float32 : codec.name == "bf16" ? DType::BFloat16 : codec.name == "fp16" ? DType::Float16 : DType::UInt8;
  buffer.shape = {codec.blocked() ? codec.encoded_bytes(elements) : elements};
  return buffer;
}

PersistentState persistent_state(const Recipe& recipe, int64_t rank) {
  PersistentState state;
  const auto keep = [&state](Buffer buffer, StateKind kind) {
    buffer.state = kind;
    buffer.persistent = true;
    state.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(state.buffers.size() - 1);
  };
  const auto add = [&keep](std::string name, StateKind kind, DType dtype, int64_t elements) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.dtype = dtype;
    buffer.shape = {elements};
    return keep(std::move(buffer), kind);
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
      if (recipe.compute == DType::Float32 && !refresh_is_lossy(recipe, place)) {
        state.buffers.back().alias_of = group.weights;
        state.buffers.back().alias_offset = optimizer.begin - weights.begin;
      }
      for (const std::string& one : recipe.optimizer_states) {
        group.optimizer.push_back(add(one + "." + name, StateKind::Optimizer, DType::Float32, optimizer.count));
      }
      const auto add_feedback = [&](const std::vector<HopSpec>& hops) {
        for (const HopSpec& hop : hops) {
          if (!hop.feedback) {
            group.feedback.push_back(kNoBuffer);
            continue;
          }
          const std::string text = fmt::format("feedback.{}.{}", recipe.topology.name_of(hop.outer), name);
          CodecSpec kept{.name = "int8", .block = hop.codec.block};
          group.feedback.push_back(keep(encoded_buffer(text, kept, place.shard(recipe.topology, rank, hop.inner).count), StateKind::Buffers));
        }
      };
      add_feedback(reduce_hops(recipe, place));
      add_feedback(reduce_on_hops(recipe, place));
      group.gradients = add("gradients." + name, StateKind::Gradients, DType::Float32, place.shard(recipe.topology, rank, place.gradients).count);
    }
    if (place.secondary) {
      const int64_t elements = place.shard(recipe.topology, rank, *place.secondary).count;
      group.secondary = keep(encoded_buffer("secondary." + name, place.secondary_codec, elements), StateKind::Secondary);
    }
    state.groups.push_back(std::move(group));
  }
  return state;
}

}  // namespace ballast
