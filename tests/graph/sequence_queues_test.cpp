// The queues of a rank as its graph has them: sequences cut over nodes, then those cut within one, then whole ones; keys travel while others are used.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ballast/graph/build_step.h"
#include "ballast/layout/parts.h"
#include "graph/small_recipe.h"

namespace ballast {
namespace {

constexpr int64_t kLayers = 2;

// Rings over both nodes, over the ranks of one, and whole sequences; given in no order.
Layout three_queues(const Topology& topology) {
  Layout layout = empty_layout("test", topology.ranks(), 1);
  std::vector<CutSequence> cuts;
  for (const std::vector<int64_t>& ranks : std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {0, 4}, {4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 5, 6}, {2, 3}}) {
    cuts.push_back({.sample = 10 + cuts.size(), .length = 40 + 8 * static_cast<int64_t>(cuts.size()), .ranks = ranks});
  }
  std::vector<WholeSequence> whole;
  for (int64_t rank = 0; rank < topology.ranks(); ++rank) for (int i = 0; i < 2; ++i) whole.push_back({{static_cast<uint64_t>(100 + 2 * rank + i), 9 + rank}, rank});
  place_sequences(layout, 0, std::move(cuts), whole, topology);
  return layout;
}

struct Attended {
  size_t index;   // of the operation
  const Op* op;
};
// Attention of a graph by layer and direction, in program order.
std::map<std::tuple<int32_t, bool>, std::vector<Attended>> attention_of(const StepGraph& graph) {
  std::map<std::tuple<int32_t, bool>, std::vector<Attended>> found;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.what == what::kAttend || op.what == what::kAttendBackward) found[{op.segment, op.what == what::kAttendBackward}].push_back({i, &op});
  }
  return found;
}

class SequenceQueues : public ::testing::TestWithParam<DType> {
 protected:
  SequenceQueues() {
    recipe_.compute = GetParam();
    for (int64_t rank = 0; rank < topology_.ranks(); ++rank) graphs_.push_back(build_step(recipe_, rank, layout_.ranks[static_cast<size_t>(rank)], Work::Train));
  }
  const CutSequence& cut(size_t rank, int32_t order) const {
    for (const CutPart& part : layout_.ranks[rank].front().cuts) if (part.cut->order == order) return *part.cut;
    throw std::out_of_range("no such cut sequence");
  }
  Topology topology_{{{"gpu", 4, {}, {}}, {"node", 2, {}, {}}}};
  Recipe recipe_ = small_recipe(topology_, kLayers);
  Layout layout_ = three_queues(topology_);
  std::vector<StepGraph> graphs_;
};

TEST_P(SequenceQueues, OverNodesThenWithinOneThenWhole) {
  std::set<int> seen;
  for (size_t rank = 0; rank < graphs_.size(); ++rank) {
    const auto attention = attention_of(graphs_[rank]);
    EXPECT_EQ(attention.size(), static_cast<size_t>(2 * kLayers));
    for (const auto& [key, all] : attention) {
      int level = topology_.outermost();
      int32_t order = -1;
      for (const Attended& one : all) {
        const int its = one.op->cut < 0 ? kSelf : cut(rank, one.op->cut).level;
        EXPECT_LE(its, level) << "rank " << rank << ", cut " << one.op->cut;
        if (one.op->cut >= 0) {
          EXPECT_GE(one.op->cut, order) << "one sequence after the other";
        }
        level = its, order = one.op->cut;
        seen.insert(level);
      }
      EXPECT_EQ(level, kSelf) << "whole sequences come last";
      EXPECT_EQ(all.back().op->units.size(), 2u) << "in one call";
    }
  }
  EXPECT_EQ(seen, (std::set<int>{kSelf, 0, 1}));
}

TEST_P(SequenceQueues, TheNextKeysTravelWhileTheseAreUsed) {
  int64_t rings = 0;
  for (size_t rank = 0; rank < graphs_.size(); ++rank) {
    const StepGraph& graph = graphs_[rank];
    for (const auto& [key, all] : attention_of(graph)) {
      for (size_t i = 0; i + 1 < all.size(); ++i) {
        const Attended &now = all[i], &next = all[i + 1];
        if (now.op->cut < 0 || next.op->cut != now.op->cut) continue;
        ASSERT_EQ(next.op->slice, now.op->slice + 1);
        const BufferId keys = next.op->inputs[1];
        EXPECT_EQ(std::count(now.op->inputs.begin(), now.op->inputs.end(), keys), 0) << "two buffers in turn";
        const auto from = std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.kind == OpKind::Exchange && std::count(op.outputs.begin(), op.outputs.end(), keys) == 1; });
        ASSERT_NE(from, graph.ops.end());
        const auto index = static_cast<size_t>(from - graph.ops.begin());
        EXPECT_LT(index, now.index) << "the exchange stands ahead of the attention that hides it";
        EXPECT_EQ(from->lane, link_lane(cut(rank, now.op->cut).level)) << "on a lane of its own";
        EXPECT_EQ(std::count(now.op->after.begin(), now.op->after.end(), static_cast<int32_t>(index)), 0) << "which does not wait for it";
        if (now.op->slice > 0) {
          EXPECT_GT(index, all[i - 1].index) << "no more than one step ahead";
        }
        ++rings;
      }
    }
  }
  EXPECT_GT(rings, 100);
}

TEST_P(SequenceQueues, GradientsOfKeysTravelOneStepBehind) {
  int64_t hops = 0;
  for (const StepGraph& graph : graphs_) {
    for (const auto& [key, all] : attention_of(graph)) {
      if (!std::get<1>(key)) continue;
      for (size_t i = 1; i < all.size(); ++i) {
        const Attended& now = all[i];
        if (now.op->cut < 0 || now.op->slice == 0) continue;
        // What this step adds to was sent on while it was computed.
        const auto add = std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.what == what::kAdd && op.inputs.front() == now.op->outputs[1]; });
        ASSERT_NE(add, graph.ops.end());
        const auto sent = std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.kind == OpKind::Exchange && std::count(op.outputs.begin(), op.outputs.end(), add->outputs.front()) == 1; });
        ASSERT_NE(sent, graph.ops.end());
        EXPECT_LT(sent, add);
        EXPECT_EQ(std::count(sent->after.begin(), sent->after.end(), static_cast<int32_t>(now.index)), 0) << "the exchange does not wait for the attention beside it";
        for (const BufferId output : now.op->outputs) EXPECT_EQ(std::count(sent->inputs.begin(), sent->inputs.end(), output), 0);
        ++hops;
      }
    }
  }
  EXPECT_GT(hops, 50);
}

INSTANTIATE_TEST_SUITE_P(InFp32AndBf16, SequenceQueues, ::testing::Values(DType::Float32, DType::BFloat16));

}  // namespace
}  // namespace ballast
