#pragma once
// Starts the ranks of one host as processes of this very executable and ends them together.
#include <chrono>
#include <string>
#include <vector>

namespace ballast {

struct LaunchOptions {
  std::chrono::milliseconds settle{3000};  // after the first failure: time for the others to report theirs
  std::chrono::milliseconds grace{5000};   // between SIGTERM and SIGKILL
};

// Runs `arguments` (without the program's name) as `ranks` processes, each with RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and a run id in its environment; rank 0 inherits a socket that listens on
// the port, so nobody can take it in between. Rank 0 keeps standard input, output and error; the lines of the others
// come out with "[rank] " before them. SIGINT, SIGTERM and SIGUSR1 are passed on. When a rank fails the others are
// ended. Returns the exit code: 0, or that of the first rank that failed for a reason of its own (not because another
// was lost); a rank killed by a signal counts as PeerLost's code. Call it before any thread exists. Throws
// Error(Environment) if processes or sockets cannot be made.
int launch(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options = {});

}  // namespace ballast
