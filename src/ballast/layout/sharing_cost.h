#pragma once
// What sharing one sequence's attention costs on the links, for every way to share it and every size of team (arXiv 2407.00611). The transfers are those
// of the lowering (attention_ops.cpp): queries, keys and values travel in the compute dtype, partial results and sums of gradients in fp32.
#include "ballast/layout/cut_role.h"
#include "ballast/layout/sequence_cost.h"

namespace ballast {

enum class SharingPeer {
  Next,      // in its ring; the only transfers that may be spread over links
  Turn,      // the team whose turn it is with the keys that a team gathered (CutPeers::shift_to), and back: all but the first of each team
  Queries,   // the others of CutPeers::queries
  Keys,      // the others of CutPeers::keys, of a team
  All,       // all other members: keys gathered, or heads exchanged
};

// Calls visit(SharingPeer, transfers, bytes of each) for what a member sends in one layer, forward and backward. A transfer to several peers counts as
// one of all its bytes. A member's tokens are taken as length / members; a ring of P members in teams of C sends, in tokens,
//   keys and values: C in each of P / C^2 - 1 hops, forward and backward; their sums: C in each of P / C^2 hops, so that they come home
template <typename Visit>
void visit_sharing(const SequenceCost& cost, const CutSequence& cut, Visit&& visit) {
  const int64_t members = cut.members(), team = cut.team;
  if (members < 2) return;
  const double own = static_cast<double>(cut.length) / static_cast<double>(members);
  const auto query = own * static_cast<double>(cost.query_bytes), keys = own * static_cast<double>(cost.key_bytes);
  const auto query_sums = own * static_cast<double>(cost.query_sum_bytes), key_sums = own * static_cast<double>(cost.key_sum_bytes);
  const auto heads = own * static_cast<double>(cost.head_bytes);
  const auto others = static_cast<double>(members - 1);
  if (cut.sharing == Sharing::Gather) {
    visit(SharingPeer::All, 2, others * keys);
    visit(SharingPeer::All, 1, others * key_sums);
    return;
  }
  if (cut.sharing == Sharing::Heads) {
    const double part = others / static_cast<double>(members);
    visit(SharingPeer::All, 2, part * (query + keys));                       // q, k, v to heads; their gradients back
    visit(SharingPeer::All, 1, part * (query + heads));                      // outputs back
    visit(SharingPeer::All, 1, part * (2 * query + keys + 2 * heads));       // all that the backward reads
    return;
  }
  const int64_t hops = members / (team * team);
  const auto size = static_cast<double>(team), mates = size - 1;
  if (hops > 1) {
    visit(SharingPeer::Next, 2 * (hops - 1), size * keys);
    visit(SharingPeer::Next, hops, size * key_sums);
  }
  if (team == 1) return;
  if (!cut.keys_across) {
    visit(SharingPeer::Turn, 2, size * keys);
    visit(SharingPeer::Turn, 1, size * key_sums);
  }
  visit(SharingPeer::Queries, 1, mates * query);
  visit(SharingPeer::Queries, 1, mates * (query_sums + heads));              // partial results
  visit(SharingPeer::Queries, 1, mates * (2 * query + 2 * heads));           // backward: q, gradient of o and what goes with its rows
  visit(SharingPeer::Queries, 1, mates * query_sums);
  visit(SharingPeer::Keys, 2, mates * keys);
  visit(SharingPeer::Keys, 1, mates * key_sums);
}

// Seconds of these transfers in all layers for one member if nothing hides them and it has its links alone: rings on the slowest of the levels that the
// sequence spans, teams on the innermost that can hold one. `route`: hops of rings are spread over the links of a unit where that pays (layout/route.h).
double sharing_s(const SequenceCost& cost, const CutSequence& cut, const Topology& topology, bool route);

// Adds the bytes of all members in all layers to the levels that they count at.
void add_sharing_bytes(const SequenceCost& cost, const CutSequence& cut, const Topology& topology, bool route, std::vector<double>& by_level);

// Activations that a team of C > 1 holds beyond a plain ring's while one layer attends: (6 C - 4) A with A = length / members tokens of a query.
// The ring holds two pairs of keys and values, 4 A; the team its queries, two pairs of C-fold keys and values, and its partial results. (The source's
// (3 C - 3) A counts neither the second pair nor that the own queries, keys and values stay for the backward.)
double team_memory_bytes(const SequenceCost& cost, int64_t length, int64_t members, int64_t team);

// Sets team and keys_across to what takes least time on the links: C = 1, 2, ... with C^2 dividing the members and the extra memory within `limit`
// bytes (0: no limit). Of equal times the smallest team.
void choose_team(CutSequence& cut, const SequenceCost& cost, const Topology& topology, double limit, bool route);

}  // namespace ballast
