#pragma once
// Agreements at the start: ranks that run another config, other data or another binary are refused before the first
// step.
#include <string>
#include <utility>
#include <vector>

#include "ballast/comm/communicator.h"

namespace ballast {

// `items`: what must be equal on all ranks, as name -> hash in one order. Throws Error(PeerLost) with the same text on
// every rank, naming the first item that differs and both ranks.
void check_same(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& items);
// The same of the levels, rates and links of a topology: ranks that see another tree would wait for other partners, and a topology may stand in a
// file that differs between hosts.
void check_same_topology(Communicator& communicator, const Topology& topology);

}  // namespace ballast
