#pragma once
// What a step will hold and send, read off its graphs without running them: memory per rank by state, payload bytes per level, operations.
#include <map>
#include <string>
#include <vector>

#include "ballast/graph/build_step.h"

namespace ballast {

struct PlanSummary {
  struct LevelBytes { std::string name; int64_t bytes_per_step = 0, layout_bytes = 0; };   // sums over all ranks; layout: remapping and rings, apart
  struct MovementBytes { std::string movement, level; int64_t bytes_per_step; };      // of bytes_per_step above, those of one movement
  struct StateBytes { std::string state, tier; int64_t bytes_per_rank; };             // maximum over ranks
  struct Contributor { std::string name; int64_t bytes; };                            // one buffer of a rank
  int64_t ranks = 1;
  std::vector<LevelBytes> levels;
  std::vector<MovementBytes> movements;    // that cross a level, level by level; together they are the level's bytes
  std::vector<StateBytes> memory;          // weights, secondary, gradients, optimizer, activations, buffers
  int64_t bytes_per_rank = 0;              // sum over states of the rank that needs most
  std::map<std::string, int64_t> operations;   // of one rank, by kernel
  double flops_per_step = 0;               // over all ranks, recompute included
  int64_t micro_batches = 0;
  std::vector<Contributor> largest;        // of the rank that needs most, summed by kind of buffer, largest first
};

// Of a training step; `layout` says what every rank holds. The arenas also hold what a checkpoint gathers. Of a split token table (table_split.h) all counts
// as cold: memory and the bytes of all ranks together do not depend on it. Ranks whose micro-batches have the same sizes have the same plan, so each kind is built once.
PlanSummary summarize(const Recipe& recipe, const Layout& layout);

// Adds the bytes that a rank sends in a hop to the level that each of its transfers counts at.
void add_sent_bytes(const Op& op, const Topology& topology, int64_t rank, std::span<int64_t> by_level);
// The same of an exchange of rows.
void add_layout_bytes(const StepGraph& graph, const Op& op, const Topology& topology, int64_t rank, std::span<int64_t> by_level);

// A layout for planning without data: every rank has `micro_batches` micro-batches filled with sequences of `sequence` tokens.
Layout assumed_layout(int64_t ranks, int64_t micro_batches, int64_t micro_tokens, int64_t sequence);

// The largest of a few depths of prefetch (3, 2, 1) with which a rank needs at most `limit` bytes; the one that needs least if none fits.
int64_t prefetch_that_fits(const Recipe& recipe, const Layout& layout, int64_t limit);

// Settings with which a rank needs at most `limit` bytes, as overrides ("placement=zero3 train.recompute=block"): the first of the presets, roughly in
// order of growing traffic, as it is or with every block recomputed; "" if none fits.
std::string settings_that_fit(const Recipe& recipe, const Layout& layout, int64_t limit);

// Throws Error(OutOfMemory) naming the three largest contributors and settings that would fit, if the plan needs more than `limit` bytes per rank.
void require_fit(const PlanSummary& summary, const Recipe& recipe, const Layout& layout, int64_t limit);

}  // namespace ballast
