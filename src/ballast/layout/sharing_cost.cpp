#include "ballast/layout/sharing_cost.h"

#include <algorithm>
#include <array>

#include "ballast/layout/route.h"

namespace ballast {

double sharing_s(const SequenceCost& cost, const CutSequence& cut, const Topology& topology, bool route) {
  int team_level = cut.level;
  while (team_level > 0 && topology.group_size(team_level - 1) >= cut.team) --team_level;
  // A hop is done when its slowest transfer is.
  const auto slowest = [&](auto&& seconds) {
    double most = 0;
    for (int level = 0; level <= cut.level; ++level) most = std::max(most, seconds(level));
    return most;
  };
  const auto direct = [&](double bytes) { return slowest([&](int level) { return cost.link_s(level, bytes); }); };
  const auto hop = [&](double bytes) {
    if (!route) return direct(bytes);
    return slowest([&](int level) {
      if (!routing_pays(topology, level)) return cost.link_s(level, bytes);
      const auto links = static_cast<double>(topology.links(level));
      return 2 * cost.link_s(level - 1, bytes * (links - 1) / links) + cost.link_s(level, bytes / links);
    });
  };
  double seconds = 0;
  visit_sharing(cost, cut, [&](SharingPeer to, int64_t transfers, double bytes) {
    double each = 0;
    switch (to) {
      case SharingPeer::Next: each = hop(bytes); break;
      case SharingPeer::Turn:
      case SharingPeer::All: each = direct(bytes); break;
      case SharingPeer::Queries: each = cost.link_s(team_level, bytes); break;
      case SharingPeer::Keys: each = cost.link_s(cut.keys_across ? cut.level : team_level, bytes); break;
    }
    seconds += static_cast<double>(transfers) * each;
  });
  return seconds * static_cast<double>(cost.layer_count());
}

void add_sharing_bytes(const SequenceCost& cost, const CutSequence& cut, const Topology& topology, bool route, std::vector<double>& by_level) {
  std::array<double, 5> sent{};   // by SharingPeer
  visit_sharing(cost, cut, [&](SharingPeer to, int64_t transfers, double bytes) { sent[static_cast<size_t>(to)] += static_cast<double>(transfers * cost.layer_count()) * bytes; });
  const auto of = [&](SharingPeer to) { return sent[static_cast<size_t>(to)]; };
  const auto rank = [&](int64_t member) { return cut.ranks[static_cast<size_t>(member)]; };
  const auto add = [&](int64_t from, int64_t to, double bytes) {
    if (from != to) by_level[static_cast<size_t>(topology.common_level(from, to))] += bytes;
  };
  const auto share_out = [&](int64_t member, const std::vector<int64_t>& among, double bytes) {
    if (among.size() < 2) return;
    for (const int64_t other : among) add(rank(member), rank(other), bytes / static_cast<double>(among.size() - 1));
  };
  for (int64_t member = 0; member < cut.members(); ++member) {
    const CutPeers peers = peers_of(cut, member);
    share_out(member, peers.queries, of(SharingPeer::Queries));
    share_out(member, peers.keys, of(SharingPeer::Keys) + of(SharingPeer::All));
    if (peers.shift_to >= 0) add(rank(member), rank(peers.shift_to), of(SharingPeer::Turn));
    if (peers.next < 0) continue;
    const int64_t from = rank(member), to = rank(peers.next);
    add(from, to, of(SharingPeer::Next));
    const int level = topology.common_level(from, to);
    if (!route || !routing_pays(topology, level)) continue;
    // Beside the way across: slices to and from the first ranks of the links.
    for (const int64_t end : {from, to}) {
      const std::vector<int64_t> heads = topology.link_heads(end, level);
      for (const int64_t head : heads) add(end, head, of(SharingPeer::Next) / static_cast<double>(heads.size()));
    }
  }
}

double team_memory_bytes(const SequenceCost& cost, int64_t length, int64_t members, int64_t team) {
  const double share = static_cast<double>(length) / static_cast<double>(members);
  return team == 1 ? 0 : static_cast<double>(6 * team - 4) * share * static_cast<double>(cost.moved_bytes()) / 8;
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
