#pragma once
// What the layout policies share: empty layouts, checks, and putting cut and whole sequences into a micro-batch. Internal to the policies.
#include <span>
#include <string>
#include <vector>

#include "ballast/layout/policies.h"

namespace ballast {

Layout empty_layout(const std::string& name, int64_t ranks, int64_t micro_batches);
Topology topology_of(const LayoutLimits& limits);   // throws Error(Usage) if its ranks are not the layout's
int common_level(std::span<const int64_t> ranks, const Topology& topology);   // innermost that contains all

// Whether `members` ranks can share a sequence under the options: a team's square divides them, heads divide.
bool may_share(const LayoutLimits& limits, int64_t members);
void require_share(const LayoutLimits& limits, int64_t members);   // throws Error(Usage) with the nearest legal
// Team and keys_across of a cut sequence by the options; its level and ranks are known.
void set_team(CutSequence& cut, const LayoutLimits& limits, const Topology& topology);

// Longest first, equal ones in the order given.
std::vector<SampleRef> longest_first(std::span<const SampleRef> selection);
// Samples, longest first, to micro-batches of equal token capacity, even in tokens, or by best fit where that does not fit. Empty: neither does.
std::vector<std::vector<SampleRef>> split_by_tokens(std::span<const SampleRef> samples, int64_t micro_batches, int64_t capacity);
// Most tokens that one of `members` ranks holds of a cut sequence of `length`. It does not fall evenly: 3 tokens over 3 ranks are one on each, over 4
// ranks somebody has two.
int64_t largest_part(int64_t length, int64_t members);
// Least slots of a rank that a sequence needs however it is cut.
int64_t least_part(int64_t length, const LayoutLimits& limits);

// A sequence on one rank.
struct WholeSequence {
  SampleRef sample;
  int64_t rank = 0;
};
// Fills micro-batch `index` of every rank: cut sequences first, outermost level first (stable), then whole ones in the order given.
// Sets CutSequence::level and order, and the pieces and slots of the ranks.
void place_sequences(Layout& layout, int64_t index, std::vector<CutSequence> cuts, std::span<const WholeSequence> whole, const Topology& topology);

// The policies. `needs_...`: the least micro_tokens that hold a sample of a length, and what make_layout refuses for it: throws Error(Usage).
int64_t needs_balanced(int64_t length, const LayoutLimits& limits);
int64_t needs_context_parallel(int64_t length, const LayoutLimits& limits);
int64_t needs_hybrid(int64_t length, const LayoutLimits& limits);
Layout lay_packed(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_padded(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_balanced(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_context_parallel(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_bload(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_best_fit(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_longest_first(std::span<const SampleRef> selection, const LayoutLimits& limits);
Layout lay_hybrid(std::span<const SampleRef> selection, const LayoutLimits& limits);

}  // namespace ballast
