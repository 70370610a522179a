#pragma once
// Measures the links of a topology, level by level: the latency of small messages, and the rate by message size, of one
// pair alone and of all pairs of the level at once, where the ranks of a unit share its link.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/communicator.h"

namespace ballast {

struct LinkRate {
  int64_t bytes;                // of one message
  double pair_bytes_per_s;      // one pair alone, one way
  double unit_bytes_per_s;      // of each unit of the level, sent and received at once, all its ranks together
};

struct LinkFigures {
  std::string name;               // of the level
  int64_t size = 1;               // its units; one unit alone has no link and no figures
  double latency_s = 0;           // one way: half the median round trip of 8 bytes between two ranks
  double bandwidth_bytes_per_s = 0;  // of a unit's link each way: the best of unit_bytes_per_s
  std::vector<LinkRate> by_size;
  std::optional<int64_t> left_out;  // messages of this size and larger would have taken too long
};

struct LinkProbeOptions {
  std::vector<int64_t> sizes{4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20};  // ascending
  double seconds = 0.4;          // of one measurement, at least
  double longest_seconds = 20;   // a message expected to take longer than this is left out
};

// Called by every rank with the same arguments; every rank gets the same figures. Rank 0 and its neighbour are the pair.
// Throws Error(Usage) for one rank alone, and what check_figures throws. `progress` is told each level's name before it.
std::vector<LinkFigures> probe_links(Communicator& communicator, const Topology& topology, const LinkProbeOptions& options = {},
                                     const std::function<void(const std::string&)>& progress = {});

// Throws Error(Environment) naming the level if a figure is zero, negative or not finite: a plan must not be built on it.
void check_figures(const LinkFigures& figures);

}  // namespace ballast
