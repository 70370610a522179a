#include "ballast/layout/route.h"

#include <algorithm>
#include <map>
#include <set>

#include "ballast/layout/cut_role.h"

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

namespace {

// Calls visit(hop) for each spread hop of the sequence's rings.
template <class Visit>
void for_each_hop(const CutSequence& cut, const Topology& topology, Visit&& visit) {
  for (int64_t member = 0; member < cut.members(); ++member) {
    const int64_t next = next_in_ring(cut, member);
    if (next < 0) return;
    const int64_t from = cut.ranks[static_cast<size_t>(member)], to = cut.ranks[static_cast<size_t>(next)];
    if (!goes_by_route(cut, topology, from, to)) continue;
    const int level = topology.common_level(from, to);
    visit(RoutedHop{from, to, next, cut.members() / cut.team / cut.team, level, topology.link_heads(from, level), topology.link_heads(to, level)});
  }
}

bool among(const std::vector<int64_t>& ranks, int64_t rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

}  // namespace

std::vector<RoutedHop> routed_hops(const CutSequence& cut, const Topology& topology, int64_t rank) {
  std::vector<RoutedHop> hops;
  for_each_hop(cut, topology, [&](RoutedHop hop) {
    if (rank == hop.from || rank == hop.to || among(hop.out, rank) || among(hop.in, rank)) hops.push_back(std::move(hop));
  });
  std::stable_sort(hops.begin(), hops.end(), [](const RoutedHop& a, const RoutedHop& b) { return a.from < b.from; });
  return hops;
}

int64_t route_rings(Layout& layout, const Topology& topology) {
  bool pays = false;
  for (int level = 0; level < topology.level_count(); ++level) pays |= routing_pays(topology, level);
  if (!pays) return 0;
  int64_t marked = 0;
  for (int64_t m = 0; m < layout.micro_batches(); ++m) {
    std::map<int64_t, std::shared_ptr<const CutSequence>> rings;   // by order
    for (const auto& rank : layout.ranks) {
      for (const CutPart& part : rank[static_cast<size_t>(m)].cuts) rings.emplace(part.cut->order, part.cut);
    }
    for (const auto& [order, old] : rings) {
      auto cut = std::make_shared<CutSequence>(*old);
      cut->routed = true;
      std::set<int64_t> concerned(cut->ranks.begin(), cut->ranks.end());
      bool routed = false;
      for_each_hop(*cut, topology, [&](const RoutedHop& hop) {
        routed = true;
        concerned.insert(hop.out.begin(), hop.out.end());
        concerned.insert(hop.in.begin(), hop.in.end());
      });
      if (!routed) continue;
      ++marked;
      for (const int64_t rank : concerned) {
        std::vector<CutPart>& parts = layout.ranks[static_cast<size_t>(rank)][static_cast<size_t>(m)].cuts;
        const auto place = std::lower_bound(parts.begin(), parts.end(), order, [](const CutPart& part, int64_t value) { return part.cut->order < value; });
        if (place != parts.end() && place->cut->order == order) {
          place->cut = cut;
        } else {
          parts.insert(place, {cut, -1, 0});
        }
      }
    }
  }
  return marked;
}

}  // namespace ballast
