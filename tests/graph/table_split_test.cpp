// The token table in two parts: which elements, where they stand in the graph, what they cost.
#include "ballast/graph/table_split.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>

#include "ballast/graph/build_step.h"
#include "ballast/graph/summary.h"

namespace ballast {
namespace {

TEST(Subset, CountsFindsAndTurnsItsElements) {
  const Subset subset({{40, 50}, {10, 20}, {20, 24}, {45, 60}, {70, 70}});
  EXPECT_EQ(subset.runs(), (std::vector<Subset::Run>{{10, 24}, {40, 60}}));
  std::vector<int64_t> elements;
  for (int64_t e = 0; e < 100; ++e) {
    EXPECT_EQ(subset.below(e), static_cast<int64_t>(elements.size())) << e;
    if ((e >= 10 && e < 24) || (e >= 40 && e < 60)) elements.push_back(e);
  }
  for (size_t i = 0; i < elements.size(); ++i) EXPECT_EQ(subset.element_at(static_cast<int64_t>(i)), elements[i]);
  EXPECT_EQ(subset.count(12, 45), 12 + 5);
  EXPECT_EQ(subset.complement(100).runs(), (std::vector<Subset::Run>{{0, 10}, {24, 40}, {60, 100}}));
  EXPECT_EQ(subset.complement(60).runs(), (std::vector<Subset::Run>{{0, 10}, {24, 40}}));
  EXPECT_EQ(Subset({}).complement(8).runs(), (std::vector<Subset::Run>{{0, 8}}));
  EXPECT_NE(subset.fingerprint(), subset.complement(100).fingerprint());
  std::vector<std::pair<int64_t, int64_t>> seen;
  subset.visit(20, 41, [&](int64_t first, int64_t count) { seen.emplace_back(first, count); });
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, int64_t>>{{20, 4}, {40, 1}}));
  subset.visit(24, 40, [&](int64_t, int64_t) { ADD_FAILURE(); });
}

Recipe recipe_of(std::vector<int64_t> sizes, const std::string& placement, DType compute = DType::Float32, bool tied = true) {
  std::vector<Level> levels;
  for (size_t i = 0; i < sizes.size(); ++i) levels.push_back({"level" + std::to_string(i), sizes[i], {}, {}});
  Recipe recipe;
  ModelConfig config = preset("gpt2-tiny");
  config.tied_head = tied;
  recipe.model = describe(config);
  recipe.topology = Topology(levels);
  recipe.placement = parse_placement(YAML::Load(placement), recipe.topology);
  recipe.compute = compute;
  recipe.optimizer_states = {"exp_avg", "exp_avg_sq"};
  recipe.prefetch = 2;
  return recipe;
}

TEST(TableSplit, HotIsWholeBlocksOfTheRowsOfTokens) {
  const Recipe recipe = recipe_of({2, 2}, "{weights: self, gradients: self, optimizer: world, wire: {refresh: {codec: int8, block: 192}}}");
  const GroupPlace place = place_group(recipe, 0);
  EXPECT_EQ(place.unit, 192);
  const int64_t width = recipe.model.config.hidden;
  const TableSplit split = split_table(recipe, {{5, 3, 5, 4, 40}, {}});
  ASSERT_TRUE(split.refresh && split.sums);
  EXPECT_EQ(split.group, size_t{0});
  const auto down = [&](int64_t e) { return e / 192 * 192; };
  EXPECT_EQ(split.refresh->hot->runs(), (std::vector<Subset::Run>{{down(3 * width), down(6 * width + 191)}, {down(40 * width), down(41 * width + 191)}}));
  EXPECT_EQ(split.refresh->hot->count(0, place.padded) + split.refresh->cold->count(0, place.padded), place.padded);
  EXPECT_TRUE(split.sums->hot->runs().empty());
  EXPECT_EQ(split.sums->cold->runs(), (std::vector<Subset::Run>{{0, place.padded}}));
  EXPECT_THROW(split_table(recipe, {{recipe.model.config.vocab_size}, {}}), std::exception);
  // Positions in the same group are read by every token.
  const Recipe untied = recipe_of({4}, "zero1", DType::Float32, false);
  const TableSplit of_untied = split_table(untied, {});
  ASSERT_TRUE(of_untied.refresh);
  EXPECT_FALSE(of_untied.sums);
  const ParameterTensor& positions = untied.model.groups[0].tensors[1];
  EXPECT_EQ(of_untied.refresh->hot->runs(), (std::vector<Subset::Run>{{positions.offset, positions.offset + positions.numel()}}));
}

TEST(TableSplit, WhatStaysWholeIsSaid) {
  const auto notes = [](const char* placement, std::vector<int64_t> sizes = {2, 2}) { return table_split_notes(recipe_of(std::move(sizes), placement)); };
  for (const char* placement : {"ddp", "zero1", "zero3", "hsdp(level0)", "hpz(level0)", "zeropp(level0)", "topo(level0, level0)"}) EXPECT_EQ(notes(placement), std::vector<std::string>{}) << placement;
  for (const auto& [placement, what, why] : std::vector<std::array<const char*, 3>>{
           {"{weights: self, gradients: self, optimizer: world, wire: {reduce_on: {codec: int4, feedback: true}}}", "sums go", "feedback"},
           {"{weights: self, gradients: self, optimizer: world, wire: {reduce_on: {codec: int4, rounding: stochastic}}}", "sums go", "stochastic"},
           {"{weights: self, gradients: self, optimizer: world, wire: {refresh: {codec: int8, rounding: stochastic}}}", "refresh goes", "stochastic"},
           {"{weights: level0, secondary: {shard: level0, forward: true}, gradients: level0, optimizer: world}", "refresh goes", "secondary"}}) {
    const std::vector<std::string> got = notes(placement);
    ASSERT_EQ(got.size(), 1u) << placement;
    EXPECT_NE(got[0].find(what), std::string::npos) << got[0];
    EXPECT_NE(got[0].find(why), std::string::npos) << got[0];
    const std::vector<std::string> all = recipe_notes(recipe_of({2, 2}, placement));
    EXPECT_NE(std::find(all.begin(), all.end(), got[0]), all.end());
  }
  EXPECT_TRUE(splits_table(recipe_of({2}, "zero1")));
  EXPECT_FALSE(splits_table(recipe_of({1}, "zero1")));
  Recipe least = recipe_of({2}, "zero1");   // one gather ahead: as little memory as without parts
  least.prefetch = 1;
  EXPECT_FALSE(splits_table(least));
}

// Indices of operations that move a part of the table under a movement.
struct Order {
  std::vector<size_t> hot, cold;
};
Order hops_of(const StepGraph& graph, Movement movement, const TableSplit::Parts& parts) {
  Order order;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.kind != OpKind::Collective || op.subset == nullptr || op.movement != static_cast<int32_t>(movement)) continue;
    (op.subset->runs() == parts.hot->runs() ? order.hot : order.cold).push_back(i);
  }
  return order;
}

std::vector<size_t> at(const Recipe& recipe, const StepGraph& graph, std::string_view what, SegmentKind kind, int32_t micro_batch) {
  std::vector<size_t> found;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.what == what && op.micro_batch == micro_batch && op.segment >= 0 && recipe.model.segments[static_cast<size_t>(op.segment)].kind == kind) found.push_back(i);
  }
  return found;
}

TEST(TableSplit, ColdPartsTravelBehindTheBlocks) {
  const StepTokens tokens{{3, 70, 9}, {11, 3}};
  for (const char* placement : {"ddp", "zero1", "zero2", "{weights: level0, gradients: level0, optimizer: world, wire: {refresh: int8, reduce: int4, reduce_on: int4}}"}) {
    for (const int32_t micro_batches : {1, 3}) {
      const Recipe recipe = recipe_of({2, 2}, placement);
      const Layout layout = assumed_layout(4, micro_batches, 32, 16);
      const StepGraph graph = build_step(recipe, 1, layout.ranks[1], Work::Train, &tokens);
      SCOPED_TRACE(std::string(placement) + " x " + std::to_string(micro_batches));
      const TableSplit split = split_table(recipe, tokens);
      const int32_t last = micro_batches - 1;
      if (std::string(placement) == "ddp") {
        EXPECT_FALSE(split.refresh);
      } else {
        const Order refresh = hops_of(graph, Movement::Refresh, *split.refresh);
        const size_t embedding = at(recipe, graph, what::kForward, SegmentKind::Embedding, 0).at(0);
        ASSERT_FALSE(refresh.hot.empty());
        ASSERT_EQ(refresh.cold.size(), refresh.hot.size());
        EXPECT_LT(refresh.hot.back(), embedding);
        EXPECT_GT(refresh.cold.front(), embedding);
        EXPECT_GT(refresh.cold.front(), at(recipe, graph, what::kForward, SegmentKind::Project, 0).at(0));
        EXPECT_LT(refresh.cold.back(), at(recipe, graph, what::kHeadTrain, SegmentKind::Head, 0).at(0));
      }
      ASSERT_TRUE(split.sums);
      const size_t head = at(recipe, graph, what::kHeadTrain, SegmentKind::Head, last).at(0), below = at(recipe, graph, what::kBackward, SegmentKind::Embedding, last).at(0);
      const size_t blocks = at(recipe, graph, what::kBackward, SegmentKind::Finish, last).at(0);
      for (const Movement movement : {Movement::Reduce, Movement::ReduceOn}) {
        const Order sums = hops_of(graph, movement, *split.sums);
        EXPECT_EQ(sums.cold.size(), sums.hot.size());
        const bool moves = movement == Movement::Reduce ? place_group(recipe, 0).gradients != kSelf : place_group(recipe, 0).gradients != recipe.topology.outermost();
        ASSERT_EQ(sums.cold.empty(), !moves);
        if (!moves) continue;
        EXPECT_GT(sums.cold.front(), head);
        EXPECT_LT(sums.cold.back(), blocks);
        EXPECT_GT(sums.hot.front(), below);
      }
    }
  }
}

TEST(TableSplit, ChangesNeitherBytesNorMemoryNorTheOrderOfRanks) {
  const std::vector<StepTokens> some{{{}, {}}, {{1, 2, 3}, {0}}, {{0, 17, 35, 99, 100, 255}, {4, 6, 8, 250}}};
  for (const char* placement : {"ddp", "zero1", "zero2", "hsdp(level0)", "topo(level0, level1)", "{weights: self, gradients: world, optimizer: world, wire: {reduce: [{codec: int4, up_to: world}]}}"}) {
    for (const int64_t micro_batches : {1, 2}) {
      const Recipe recipe = recipe_of({2, 3}, placement, DType::BFloat16);
      const Layout layout = assumed_layout(6, micro_batches, 32, 16);
      SCOPED_TRACE(std::string(placement) + " x " + std::to_string(micro_batches));
      const PlanSummary summary = summarize(recipe, layout);
      std::vector<int64_t> whole(2), want;
      for (const auto& one : summary.levels) want.push_back(one.bytes_per_step);
      const auto bytes = [&](const StepTokens* tokens) {
        std::vector<int64_t> sent(2);
        for (int64_t rank = 0; rank < 6; ++rank) {
          const StepGraph graph = build_step(recipe, rank, layout.ranks[static_cast<size_t>(rank)], Work::Train, tokens);
          for (const Op& op : graph.ops) if (op.kind == OpKind::Collective) add_sent_bytes(op, recipe.topology, rank, sent);
        }
        return sent;
      };
      EXPECT_EQ(bytes(nullptr), want);
      std::vector<uint64_t> fingerprints;
      for (const StepTokens& tokens : some) {
        EXPECT_EQ(bytes(&tokens), want);
        const StepGraph first = build_step(recipe, 0, layout.ranks[0], Work::Train, &tokens);
        fingerprints.push_back(first.fingerprint());
        const StepGraph none = build_step(recipe, 0, layout.ranks[0], Work::Train, &some[0]);
        EXPECT_EQ(first.buffer_bytes, none.buffer_bytes);
        EXPECT_EQ(first.activation_bytes, none.activation_bytes);
        EXPECT_EQ(first.ops.size(), none.ops.size());
        for (int64_t rank = 1; rank < 6; ++rank) {
          EXPECT_EQ(build_step(recipe, rank, layout.ranks[static_cast<size_t>(rank)], Work::Train, &tokens).fingerprint(), fingerprints.back()) << rank;
        }
      }
      // Ranks that know other tokens are told so before they exchange anything.
      EXPECT_NE(fingerprints[0], fingerprints[1]);
      EXPECT_NE(fingerprints[1], fingerprints[2]);
    }
  }
}

// Where gathers run ahead, no buffer of one link lane lies where another lane's may: nothing waits for a place but on its own lane or on compute.
TEST(TableSplit, LinkLanesHavePlacesOfTheirOwn) {
  const StepTokens tokens{{3, 70, 9}, {11, 3}};
  for (const char* placement : {"ddp", "zero3", "topo(level0, level0, reduce_on=int4, refresh=int8)"}) {
    Recipe recipe = recipe_of({2, 2}, placement, DType::BFloat16);
    const Layout layout = assumed_layout(4, 2, 32, 16);
    recipe.prefetch = 1;
    const int64_t shared = build_step(recipe, 1, layout.ranks[1], Work::Train, &tokens).buffer_bytes;
    recipe.prefetch = 2;
    const StepGraph graph = build_step(recipe, 1, layout.ranks[1], Work::Train, &tokens);
    std::vector<std::set<Lane>> lanes(graph.buffers.size());
    for (const Op& op : graph.ops) {
      for (const auto* list : {&op.inputs, &op.outputs, &op.saved, &op.weights, &op.gradients}) for (BufferId id : *list) lanes[static_cast<size_t>(id)].insert(op.lane);
    }
    std::map<Lane, std::pair<int64_t, int64_t>> places;   // by the lane that a place belongs to: its first and last byte
    for (size_t b = static_cast<size_t>(graph.persistent); b < graph.buffers.size(); ++b) {
      const Buffer& buffer = graph.buffers[b];
      if (buffer.state == StateKind::Activations || lanes[b].empty()) continue;
      const Lane lane = lanes[b].contains(kComputeLane) ? kComputeLane : *lanes[b].rbegin();
      const auto [place, fresh] = places.try_emplace(lane, buffer.arena_offset, 0);
      place->second.first = std::min(place->second.first, buffer.arena_offset);
      place->second.second = std::max(place->second.second, buffer.arena_offset + buffer.bytes());
    }
    EXPECT_EQ(places.size(), 3u) << placement;
    int64_t end = 0;
    for (const auto& [lane, place] : places) {
      EXPECT_GE(place.first, end) << placement << " lane " << lane;
      end = place.second;
    }
    EXPECT_LE(end, graph.buffer_bytes);
    EXPECT_GT(graph.buffer_bytes, shared);
  }
}

}  // namespace
}  // namespace ballast
