#pragma once
// What a layout is predicted to cost: seconds of every rank by kind of work, bytes by level, how even it is, and what would hide its rings.
#include <span>
#include <string>
#include <vector>

#include "ballast/layout/policies.h"

namespace ballast {

struct RankSeconds {
  double attention = 0, linear = 0, sharing = 0;   // sharing: transfers of cut sequences, which run beside attention
  double compute() const { return attention + linear; }
};

struct LayoutReport {
  std::string name;
  int64_t micro_batches = 0, tokens = 0, slots = 0;
  std::vector<RankSeconds> ranks;      // sums over micro-batches
  // Per micro-batch the slowest rank: the larger of attention and sharing, then the linear modules; where tokens move both parts end together on
  // all ranks, with the moves between them.
  double step_s = 0;
  double remap_s = 0;                  // of these, in moves
  double lower_bound_s = 0;            // even compute of the real tokens and nothing on the links: the same for every layout of these sequences
  double cost_imbalance = 1;           // sum over micro-batches of the most loaded rank / sum of means: of attention where tokens move, else of all compute
  double token_imbalance = 1;          // the same of token slots in the linear modules
  std::vector<double> sharing_bytes, moved_bytes;   // by level, sums over ranks, forward and backward, all layers
  int64_t cut_sequences = 0, remapped_micro_batches = 0;
  int64_t longest_whole = 0;           // tokens; 0: none
  std::vector<int64_t> shortest_cut;   // by level; 0: none
  std::vector<int64_t> hidden_from;    // by level: zone_boundaries
  double padding_share() const { return slots == 0 ? 0 : 1 - static_cast<double>(tokens) / static_cast<double>(slots); }
  std::vector<std::string> notes;      // cut sequences too short to hide their rings, and the like
};
// Of one rank in one micro-batch: its parts of cut sequences and its whole ones, a padded row with its padding.
double attention_s(const MicroBatchLayout& batch, const SequenceCost& cost);
// LayoutReport::lower_bound_s of sequences of these lengths, growing, on so many ranks.
double lower_bound_s(std::span<const int64_t> lengths, const SequenceCost& cost, int64_t ranks);
LayoutReport describe_layout(const Layout& layout, const LayoutLimits& limits);

// By level: the length from which attention hides the transfers of a sequence that all ranks of a unit of the level share (arXiv 2509.21841:
// s* = (G - 1) h_kv b F / (h B) for a ring of G); 1 where links are free, -1 where no length does (a window, or heads that do not divide).
std::vector<int64_t> zone_boundaries(const LayoutLimits& limits);

}  // namespace ballast
