#pragma once
// Who works on what when ranks share a sequence's attention: the queries and keys of one member, step by step.
//
// P members form T = P / C teams of C consecutive ones; teams form C sets of S = T / C; member (t, c) is number c of team t.
// A member works on the queries of its whole team. Its keys go round a ring of S members: those with its number c in the teams of its set.
//   keys within teams:  the team gathers its keys; then member (t, c) takes those of team (t + c S) mod T, so that the C members of a team begin
//                       in C different sets and together meet every key once.
//   keys across teams:  member (t, c) gathers the keys of number c from one team of every set.
// C = 1 is the plain ring of P. (Concentric rings, arXiv 2407.00611; that the start must differ between members is not in its text.)
#include <vector>

#include "ballast/layout/layout.h"

namespace ballast {

// With whom a member exchanges.
struct CutPeers {
  std::vector<int64_t> queries;                // members whose queries it works on, itself included
  std::vector<int64_t> keys;                   // members whose keys and values it gathers first, itself included
  int64_t shift_to = -1, shift_from = -1;      // whom it then gives them to, and from whom it takes others; -1: keeps its own
  int64_t next = -1, previous = -1;            // in its ring; -1: none
};
struct CutRole : CutPeers {
  std::vector<std::vector<int64_t>> stations;  // by step: members whose keys and values it holds
};

// The member that this one gives its keys to in its ring; -1: none.
int64_t next_in_ring(const CutSequence& cut, int64_t member);
// Both throw Error(Usage) if team^2 does not divide the members.
CutPeers peers_of(const CutSequence& cut, int64_t member);
CutRole role_of(const CutSequence& cut, int64_t member);

}  // namespace ballast
