#pragma once
// A model small enough to lay out by hand, replicated over a topology: what tests of layouts build graphs with.
#include "ballast/graph/shards.h"
#include "ballast/plan/model_shape.h"

namespace ballast {

inline Recipe small_recipe(const Topology& topology, int64_t layers, int64_t heads = 4, int64_t heads_of_a_key = 1) {
  ModelConfig model;
  model.vocab_size = 50;
  model.hidden = 32;
  model.layers = layers;
  model.heads = heads;
  model.kv_heads = heads / heads_of_a_key;
  model.head_dim = model.hidden / heads;
  model.intermediate = 64;
  model.max_positions = 4096;
  Recipe recipe;
  recipe.model = describe(model, {});
  recipe.topology = topology;
  recipe.placement = parse_placement_preset("ddp", topology);
  return recipe;
}

}  // namespace ballast
