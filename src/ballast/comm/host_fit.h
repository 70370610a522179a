#pragma once
// Whether the units of a topology fit the hosts that the ranks stand on: a level whose unit holds parts of two hosts crosses the link between them
// where the plan counts on a fast one.
#include <string>
#include <vector>

#include "ballast/plan/topology.h"

namespace ballast {

// `hosts`: by rank, equal where ranks share a host. "" if every unit of every level lies in one host or is made of whole ones, and a single level is
// not over several hosts of several ranks each; else which level, ranks and hosts do not fit, and the cure.
std::string host_misfit(const Topology& topology, const std::vector<std::string>& hosts);

}  // namespace ballast
