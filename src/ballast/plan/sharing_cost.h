#pragma once
// What sharing one sequence's attention costs on the links, for every way to share it and every size of team (arXiv 2407.00611).
#include "ballast/plan/layout.h"
#include "ballast/plan/sequence_cost.h"
#include "ballast/plan/topology.h"

namespace ballast {

// Bytes that each member sends over all layers, forward and backward (where gradients of keys and values travel along, so twice as much).
//   ring   keys and values in hops of team * length / members tokens, members / team^2 - 1 times
//   shift  of these, what a team moves once before its ring
//   team   queries, keys, values and outputs gathered and scattered again within a team
struct SharingBytes {
  double ring = 0, shift = 0, team = 0;
  int64_t ring_transfers = 0, team_transfers = 0;   // one after the other
};
SharingBytes sharing_bytes(const SequenceCost& cost, const CutSequence& cut);

// Seconds of these transfers for one member if nothing hides them and it has its links alone: the ring on the outermost level that it crosses, the
// team on the innermost that can hold it. `route`: hops of rings are spread over the links of a unit where that pays (plan/route.h).
double sharing_s(const SequenceCost& cost, const CutSequence& cut, const Topology& topology, bool route);

// Activations that a team of C > 1 holds beyond a plain ring's while one layer attends: (6 C - 4) A with A = length / members tokens of `moved_bytes` / 8.
// The ring holds two pairs of keys and values, 4 A; the team its queries, two pairs of C-fold keys and values, and its partial results. (The source's
// (3 C - 3) A counts neither the second pair nor that the own queries, keys and values stay for the backward.)
double team_memory_bytes(const SequenceCost& cost, int64_t length, int64_t members, int64_t team);

// Sets team and keys_across to what takes least time on the links: C = 1, 2, ... with C^2 dividing the members and the extra memory within `limit`
// bytes (0: no limit). Of equal times the smallest team.
void choose_team(CutSequence& cut, const SequenceCost& cost, const Topology& topology, double limit, bool route);

}  // namespace ballast
