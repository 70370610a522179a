#include "ballast/plan/route.h"

#include <algorithm>
#include <map>
#include <set>

#include "ballast/plan/cut_role.h"

namespace ballast {

double routed_seconds(double bytes, double within_bytes_per_s, double between_bytes_per_s, int64_t links) {
  const auto x = static_cast<double>(links);
  return bytes * (2 * (x - 1) / x / within_bytes_per_s + 1 / x / between_bytes_per_s);
}

bool routing_pays(const Topology& topology, int level) {
  if (level < 1 || topology.links(level) < 2) return false;
  const auto within = topology.level(level - 1).bandwidth, between = topology.level(level).bandwidth;
  return within && between && routed_seconds(1, *within, *between, topology.links(level)) < 1 / *between;
}

bool goes_by_route(const CutSequence& cut, const Topology& topology, int64_t from, int64_t to) {
  return cut.routed && routing_pays(topology, topology.common_level(from, to));
}

std::vector<RoutedHop> routed_hops(const CutSequence& cut, const Topology& topology, int64_t rank) {
  std::vector<RoutedHop> hops;
  for (int64_t member = 0; member < cut.members(); ++member) {
    const CutRole role = role_of(cut, member);
    if (role.next < 0) continue;
    const int64_t from = cut.ranks[static_cast<size_t>(member)], to = cut.ranks[static_cast<size_t>(role.next)];
    if (!goes_by_route(cut, topology, from, to)) continue;
    const int level = topology.common_level(from, to);
    if (topology.common_level(rank, from) >= level && topology.common_level(rank, to) >= level) continue;   // in neither's unit
    RoutedHop hop{from, to, role.next, static_cast<int64_t>(role.stations.size()), level, topology.link_heads(from, level), topology.link_heads(to, level)};
    const auto among = [rank](const std::vector<int64_t>& ranks) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
    if (rank == from || rank == to || among(hop.out) || among(hop.in)) hops.push_back(std::move(hop));
  }
  std::stable_sort(hops.begin(), hops.end(), [](const RoutedHop& a, const RoutedHop& b) { return a.from < b.from; });
  return hops;
}

int64_t route_rings(Layout& layout, const Topology& topology) {
  int64_t marked = 0;
  for (int64_t m = 0; m < layout.micro_batches(); ++m) {
    // Rings by order, each with all who have it.
    std::map<int64_t, std::shared_ptr<const CutSequence>> rings;
    for (const auto& rank : layout.ranks) {
      for (const CutPart& part : rank[static_cast<size_t>(m)].cuts) if (part.cut->sharing == Sharing::Ring) rings.emplace(part.cut->order, part.cut);
    }
    for (const auto& [order, old] : rings) {
      auto cut = std::make_shared<CutSequence>(*old);
      cut->routed = true;
      std::set<int64_t> concerned;
      for (int64_t rank = 0; rank < topology.ranks(); ++rank) if (!routed_hops(*cut, topology, rank).empty()) concerned.insert(rank);
      if (concerned.empty()) continue;
      ++marked;
      for (int64_t rank = 0; rank < topology.ranks(); ++rank) {
        std::vector<CutPart>& parts = layout.ranks[static_cast<size_t>(rank)][static_cast<size_t>(m)].cuts;
        const auto place = std::lower_bound(parts.begin(), parts.end(), order, [](const CutPart& part, int64_t value) { return part.cut->order < value; });
        if (place != parts.end() && place->cut->order == order) {
          place->cut = cut;
        } else if (concerned.contains(rank)) {
          parts.insert(place, {cut, -1, 0});
        }
      }
    }
  }
  return marked;
}

}  // namespace ballast
