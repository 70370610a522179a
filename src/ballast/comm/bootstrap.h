#pragma once
// Who this process is among its peers, read from the environment of whatever started it: our own launcher, torchrun,
// Open MPI or Slurm.
#include <cstdint>
#include <map>
#include <string>

namespace ballast {

struct Membership {
  int64_t rank = 0, ranks = 1, local_rank = 0, local_ranks = 1;
  std::string master;  // host that keeps the rendezvous store; "" for one rank alone
  int port = 0;
  std::string source = "no launcher";  // which environment it was read from
  std::string run_id;                  // keeps runs apart that meet at one store
  int listen_fd = -1;                  // rank 0: a socket that listens on `port` already, or -1
  bool store_hosted = false;           // the launcher keeps the store, no rank does
  bool bound = false;                  // the launcher gave this rank cores of its own
};

using Environment = std::map<std::string, std::string>;
Environment process_environment();

// Our launcher and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) come first, then
// Open MPI (OMPI_COMM_WORLD_*), then a Slurm step (SLURM_PROCID, ...). None of them: one rank alone. Throws
// Error(Usage) for a partial, ill-typed or contradictory environment, naming the variable.
Membership detect_membership(const Environment& environment);

// First host of a Slurm node list: "gpu[07-09,12],login1" -> "gpu07". Throws Error(Usage) if malformed.
std::string first_host(const std::string& node_list);

// Cores that the affinity mask grants, divided by the ranks that share it; at least 1.
int threads_per_rank(const Membership& membership);

}  // namespace ballast
