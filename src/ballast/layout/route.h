#pragma once
// Hops of rings between units whose ranks share several links (Zeppelin's routing layer, arXiv 2509.21841): the sender spreads its message over the
// first ranks of all links of its unit, each passes its slice across, and the receiver gathers them. n bytes take
//   n (b_in (x - 1) / x + b_out / x + b_in (x - 1) / x)     instead of     n b_out      (b = seconds per byte within and between units, x links)
#include <vector>

#include "ballast/layout/layout.h"
#include "ballast/plan/topology.h"

namespace ballast {

// Seconds for `bytes` over x links, by that formula; x = 1 is the direct way.
double routed_seconds(double bytes, double within_bytes_per_s, double between_bytes_per_s, int64_t links);
// Whether spreading over the links of a level beats the direct way: more than one link, and both rates known with b_out > 2 b_in.
bool routing_pays(const Topology& topology, int level);

struct RoutedHop {
  int64_t from = 0, to = 0;               // ranks
  int64_t to_member = 0;
  int64_t steps = 1;                      // of the ring
  int level = 1;                          // that holds both
  std::vector<int64_t> out, in;           // by link: the ranks of the sender's and the receiver's unit that the slices pass
};

// Whether a hop of this cut sequence between two ranks is spread.
bool goes_by_route(const CutSequence& cut, const Topology& topology, int64_t from, int64_t to);
// The spread hops of a cut sequence's rings that begin at a rank, end at it or pass it, in the order of senders.
std::vector<RoutedHop> routed_hops(const CutSequence& cut, const Topology& topology, int64_t rank);

// Marks the rings of the layout whose hops gain by it, and adds them to the ranks that only pass them on. Says how many are marked.
int64_t route_rings(Layout& layout, const Topology& topology);

}  // namespace ballast
