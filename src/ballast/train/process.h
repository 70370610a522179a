#pragma once
// How a verb gets its ranks: from the environment of torchrun, mpirun, srun or our own launcher, by launching them, or alone.
#include <functional>

#include "ballast/comm/communicator.h"
#include "ballast/config/run_config.h"

namespace ballast {

// Work of one rank; `threads` are the compute threads it may use. Returns the exit code.
using RankWork = std::function<int(const Topology& topology, Communicator& communicator, int threads)>;

// Runs `work` as one of the ranks that the environment names; else, where `ranks` (or the topology) asks for several, starts this very command line
// once per rank and waits; else alone. A rank that fails tells the others before it unwinds. `before`: runs in one
// process before ranks are started, so that what all of them would refuse is said once.
int on_ranks(const RunConfig& config, int64_t ranks, const RankWork& work, const std::function<void(const Topology& topology)>& before = {});

}  // namespace ballast
