#pragma once
// The ways to lay a step's selection out over ranks and micro-batches: one function per policy behind one table.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ballast/layout/layout.h"
#include "ballast/layout/sequence_cost.h"
#include "ballast/plan/topology.h"

namespace ballast {

// Whether tokens move between a layout for attention and an even one for everything else.
enum class Remap : uint8_t { Auto, Always, Never };   // Auto: where the predicted time of the step falls

struct SequenceOptions {
  Sharing sharing = Sharing::Ring;
  int64_t team = 1;               // of a ring; 0: chosen by cost for each. The square of a team divides the ring's ranks
  bool keys_across = false;       // CutSequence::keys_across, of a team that is given
  double team_memory_bytes = 0;   // most that a chosen team may hold beyond a plain ring in one layer; 0: no limit
  Remap remap = Remap::Auto;
  bool route = true;              // spread hops between units over their links where that pays (layout/route.h)
  int64_t attention_tokens = 0;   // attention slots of a micro-batch on one rank under a remap; 0: 2 * micro_tokens
  uint64_t seed = 0;              // of layouts that draw (bload), with the epoch
  int64_t epoch = 0;
};

struct LayoutLimits {
  int64_t ranks = 1;
  int64_t micro_tokens = 0;                 // token slots of one micro-batch on one rank
  std::optional<Topology> topology = {};    // of `ranks`; absent: one level
  SequenceCost cost = {};
  SequenceOptions options = {};
  int64_t heads = 0, kv_heads = 0;          // of the model, for Sharing::Heads; 0: not checked
};

// packed: whole samples, longest first, each into the least filled micro-batch, or by best fit where that needs fewer micro-batches; their number is
// the smallest that either fits. padded: samples in order, each padded to the longest of its micro-batch (the baseline).
// context-parallel: every sample cut over all ranks. balanced: whole where possible, cut where needed, by cost (docs/sequences.md).
// bload: blocks as long as the longest sample, filled at random; their ends are padding. best-fit: whole samples, tightest first.
// For comparison: longest-first (whole samples by cost, each to the least loaded rank) and hybrid (each sample over the smallest power of two of ranks
// that holds it, micro-batches by that number; ranks beyond a multiple of it stay idle).
// Throws Error(Usage) for an unknown name, ranks that are not the topology's, teams and heads that do not divide, and samples that no layout of the
// policy holds (naming the smallest micro_tokens that would do); Error(Data) for lengths below 1.
Layout make_layout(const std::string& policy, std::span<const SampleRef> selection, const LayoutLimits& limits);
std::vector<std::string> layout_policies();
// The smallest micro_tokens with which a policy holds every sample of up to `longest` tokens. Throws Error(Usage) as make_layout does where ranks cannot
// share as the options say.
int64_t least_micro_tokens(const std::string& policy, int64_t longest, const LayoutLimits& limits);
// Whether a policy may cut samples over ranks; the others keep each on one, so it must fit a micro-batch. False for an unknown name.
bool layout_cuts(const std::string& policy);

}  // namespace ballast
