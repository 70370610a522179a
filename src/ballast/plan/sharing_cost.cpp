#include "ballast/plan/sharing_cost.h"

#include <algorithm>

#include "ballast/plan/route.h"

namespace ballast {

SharingBytes sharing_bytes(const SequenceCost& cost, const CutSequence& cut) {
  SharingBytes bytes;
  const auto members = static_cast<double>(cut.members()), team = static_cast<double>(cut.team);
  if (cut.members() < 2) return bytes;
  const double share = static_cast<double>(cut.length) / members;   // tokens of a member
  const double keys = share * static_cast<double>(cost.key_bytes), moved = share * static_cast<double>(cost.moved_bytes);
  const auto layers = cost.layer_count();
  const auto times = static_cast<double>(layers);
  switch (cut.sharing) {
    case Sharing::Ring: {
      const int64_t hops = cut.members() / (cut.team * cut.team) - 1;
      // Keys and values within a team first go to the team whose turn it is, unless the team gathered them from there (keys_across).
      const int64_t first = cut.team > 1 && !cut.keys_across ? 1 : 0;
      bytes.ring = 3 * times * static_cast<double>(hops + first) * team * keys;
      bytes.shift = 3 * times * static_cast<double>(first) * team * keys;
      bytes.ring_transfers = 3 * layers * (hops + first);
      bytes.team = times * (team - 1) * moved;
      bytes.team_transfers = cut.team > 1 ? 4 * layers : 0;
      break;
    }
    case Sharing::Gather:   // keys and values gathered forward and backward, their gradients scattered
      bytes.ring = 3 * times * (members - 1) * keys;
      bytes.ring_transfers = 3 * layers;
      break;
    case Sharing::Heads:   // two exchanges forward, two backward
      bytes.ring = times * moved * (members - 1) / members;
      bytes.ring_transfers = 4 * layers;
      break;
  }
  return bytes;
}

double sharing_s(const SequenceCost& cost, const CutSequence& cut, const Topology& topology, bool route) {
  const SharingBytes bytes = sharing_bytes(cost, cut);
  const auto spread = [](int64_t transfers, double all, auto&& link) {
    return transfers == 0 ? 0.0 : static_cast<double>(transfers) * link(all / static_cast<double>(transfers));
  };
  int team_level = cut.level;
  while (team_level > 0 && topology.group_size(team_level - 1) >= cut.team) --team_level;
  if (cut.keys_across) team_level = cut.level;
  double slowest = 0;   // a hop is done when its slowest transfer is
  for (int level = 0; level <= cut.level; ++level) {
    const bool routed = route && cut.sharing == Sharing::Ring && routing_pays(topology, level);
    const auto links = static_cast<double>(routed ? topology.links(level) : 1);
    const auto direct = [&](double each) { return cost.link_s(level, each); };
    const auto hop = [&](double each) { return routed ? 2 * cost.link_s(level - 1, each * (links - 1) / links) + cost.link_s(level, each / links) : direct(each); };
    slowest = std::max(slowest, spread(bytes.ring_transfers, bytes.ring, [&](double each) {
      const double shifted = bytes.shift > 0 ? bytes.shift / bytes.ring : 0;   // always directly
      return shifted * direct(each) + (1 - shifted) * hop(each);
    }));
  }
  return slowest + spread(bytes.team_transfers, bytes.team, [&](double each) { return cost.link_s(team_level, each); });
}

double team_memory_bytes(const SequenceCost& cost, int64_t length, int64_t members, int64_t team) {
  const double share = static_cast<double>(length) / static_cast<double>(members);
  return team == 1 ? 0 : static_cast<double>(6 * team - 4) * share * static_cast<double>(cost.moved_bytes) / 8;
}

void choose_team(CutSequence& cut, const SequenceCost& cost, const Topology& topology, double limit, bool route) {
  CutSequence tried = cut;
  tried.team = 1, tried.keys_across = false;
  cut.team = 1, cut.keys_across = false;
  double least = sharing_s(cost, tried, topology, route);
  for (int64_t team = 2; team * team <= cut.members(); ++team) {
    if (cut.members() % (team * team) != 0) continue;
    if (limit > 0 && team_memory_bytes(cost, cut.length, cut.members(), team) > limit) continue;
    for (const bool across : {false, true}) {
      tried.team = team, tried.keys_across = across;
      const double seconds = sharing_s(cost, tried, topology, route);
      if (seconds < least) least = seconds, cut.team = team, cut.keys_across = across;
    }
  }
}

}  // namespace ballast
