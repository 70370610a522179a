#pragma once
// Moves between the layout of attention and an even one for the rest: every rank gets an equal share of a micro-batch's tokens, and as few tokens
// as possible cross the topology, the outermost level counting first (arXiv 2509.21841).
#include <span>
#include <vector>

#include "ballast/layout/layout.h"
#include "ballast/layout/sequence_cost.h"
#include "ballast/plan/topology.h"

namespace ballast {

// Turns the present pieces of micro-batch `index` into its attention layout and fills pieces, leave and arrive of every rank: a rank holds
// total / ranks tokens, some one more; those it has already come first. A micro-batch that is even as it stands is left alone. Without padding.
void make_remap(Layout& layout, int64_t index, const Topology& topology);
void make_remap(Layout& layout, const Topology& topology);   // of all micro-batches

// How many tokens each rank should hold where it has `held`: the sum over ranks / ranks or one more, so that few cross.
std::vector<int64_t> even_shares(std::span<const int64_t> held, const Topology& topology);

// `count` tokens that go from one rank to another.
struct TokenMove {
  int64_t from = 0, to = 0, count = 0;
  bool operator==(const TokenMove&) const = default;
};
// Moves that turn `held` into `wanted` (equal sums): inside the innermost units first, then outwards; by sender, then by level. At every level as few
// tokens cross as any moves could do.
std::vector<TokenMove> token_moves(std::span<const int64_t> held, std::span<const int64_t> wanted, const Topology& topology);

// Tokens that cross each level, counted at the innermost level that contains both ends.
std::vector<int64_t> tokens_by_level(std::span<const TokenMove> moves, const Topology& topology);
// Seconds of the moves of a step, there and back, forward and backward, all layers, on the busiest link: what a unit sends or what it receives.
double moves_s(std::span<const TokenMove> moves, const SequenceCost& cost, const Topology& topology);

// The tokens of slots [slot, slot + count) of pieces without padding.
std::vector<Piece> slice(std::span<const Piece> pieces, int64_t slot, int64_t count);
// Appends, joined with the last piece where it goes on.
void append_joined(std::vector<Piece>& pieces, const Piece& piece);

}  // namespace ballast
