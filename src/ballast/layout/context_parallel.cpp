// context-parallel: every sequence cut over all ranks, the plain form of sequence parallelism (arXiv 2310.01889).
#include <algorithm>
#include <numeric>

#include "ballast/layout/parts.h"

namespace ballast {

namespace {

// A micro-batch under construction: tokens by rank, and its sequences.
struct OpenBatch {
  std::vector<int64_t> tokens;
  std::vector<CutSequence> cuts;
};

// The chunks of short sequences are not all equally long: a sequence starts at another rank than the one before, so that the longer ones go round.
// Teams stay together.
std::vector<int64_t> ring_order(int64_t ranks, int64_t turn) {
  std::vector<int64_t> order(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < ranks; ++i) order[static_cast<size_t>(i)] = (i + turn) % ranks;
  return order;
}

bool add(OpenBatch& batch, CutSequence cut, int64_t limit) {
  for (int64_t member = 0; member < cut.members(); ++member) {
    const auto [first, second] = cut.chunks(member);
    if (batch.tokens[static_cast<size_t>(cut.ranks[static_cast<size_t>(member)])] + first.length + second.length > limit) return false;
  }
  for (int64_t member = 0; member < cut.members(); ++member) {
    const auto [first, second] = cut.chunks(member);
    batch.tokens[static_cast<size_t>(cut.ranks[static_cast<size_t>(member)])] += first.length + second.length;
  }
  batch.cuts.push_back(std::move(cut));
  return true;
}

}  // namespace

int64_t needs_context_parallel(int64_t length, const LayoutLimits& limits) {
  require_share(limits, limits.ranks);
  return largest_part(length, limits.ranks);
}

Layout lay_context_parallel(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  if (limits.ranks == 1) {   // nothing to share
    Layout layout = lay_packed(selection, limits);
    layout.name = "context-parallel";
    return layout;
  }
  require_share(limits, limits.ranks);   // of no samples too
  const std::vector<SampleRef> samples = longest_first(selection);
  std::vector<OpenBatch> batches;
  const int64_t team = std::max<int64_t>(1, limits.options.team);
  for (const SampleRef& sample : samples) {
    bool placed = false;
    for (size_t b = 0; !placed; ++b) {   // the first with room; a fresh one has it
      if (b == batches.size()) batches.push_back({std::vector<int64_t>(static_cast<size_t>(limits.ranks), 0), {}});
      CutSequence cut{.sample = sample.sample, .length = sample.length};
      cut.ranks = ring_order(limits.ranks, static_cast<int64_t>(batches[b].cuts.size()) * team % limits.ranks);
      cut.level = topology.outermost();
      set_team(cut, limits, topology);
      placed = add(batches[b], std::move(cut), limits.micro_tokens);
    }
  }
  Layout layout = empty_layout("context-parallel", limits.ranks, std::max<int64_t>(1, static_cast<int64_t>(batches.size())));
  for (size_t b = 0; b < batches.size(); ++b) place_sequences(layout, static_cast<int64_t>(b), std::move(batches[b].cuts), {}, topology);
  return layout;
}

}  // namespace ballast
