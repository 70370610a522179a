#include "ballast/train/process.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/comm/agreement.h"
#include "ballast/comm/bootstrap.h"
#include "ballast/comm/launcher.h"
#include "ballast/comm/processes.h"
#include "ballast/kernel/allocator.h"

namespace ballast {

namespace {

// The arguments of this process, for starting it again.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  std::string word;
  while (std::getline(file, word, '\0')) words.push_back(word);
  if (words.empty()) throw Error(ErrorKind::Environment, "the command line cannot be read").at("/proc/self/cmdline").cure("mount /proc, or start the ranks with torchrun");
  words.erase(words.begin());
  return words;
}

int run_rank(const RunConfig& config, const Topology& topology, const Membership& membership, const RankWork& work) {
  if (membership.ranks > 1) set_thread_rank(static_cast<int>(membership.rank));
  const int threads = config.train.threads > 0 ? static_cast<int>(config.train.threads) : threads_per_rank(membership);
  ProcessOptions options;
  options.common.deadline = std::chrono::milliseconds(static_cast<int64_t>(config.train.timeout_s * 1000));
  options.routes = config.comm.backend == "gloo"  ? ProcessRoutes::Gloo
                   : config.comm.backend == "shm" ? ProcessRoutes::Shm
                                                  : ProcessRoutes::Auto;
  const std::unique_ptr<Communicator> communicator = membership.ranks == 1 ? make_single() : make_processes(topology, membership, options);
  if (membership.ranks > 1) log_info("rank {} of {}, started by {}, talks through {}", membership.rank, membership.ranks, membership.source, communicator->name());
  try {
    check_same_topology(*communicator, topology);
    return work(topology, *communicator, threads);
  } catch (const std::exception& error) {
    communicator->abort(fmt::format("rank {} failed: {}", membership.rank, error.what()));
    throw;
  }
}

}  // namespace

int on_ranks(const RunConfig& config, int64_t ranks, const RankWork& work, const std::function<void(const Topology& topology)>& before) {
  install_allocator();
  const Membership given = detect_membership(process_environment());
  const bool launched = given.source != Membership{}.source;
  if (launched) {
    if (ranks > 0 && ranks != given.ranks) {
      throw Error(ErrorKind::Usage, "--ranks contradicts the launcher")
          .found(fmt::format("--ranks {}, {} started {} ranks", ranks, given.source, given.ranks))
          .cure("leave --ranks away under torchrun, mpirun or srun");
    }
    return run_rank(config, topology_of(config, given.ranks), given, work);
  }
  const Topology topology = topology_of(config, ranks);
  if (topology.ranks() > 1) {
    if (before) {
      // In a process of its own: threads that it left behind here would be killed by the signals that the launcher waits for.
      std::fflush(nullptr);
      const pid_t checker = fork();
      if (checker < 0) throw Error(ErrorKind::Environment, "cannot start a process").found(errno_text(errno));
      if (checker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        before(topology);
        return 0;
      }
      int status = 0;
      while (waitpid(checker, &status, 0) < 0 && errno == EINTR) {
      }
      if (WIFSIGNALED(status)) {
        throw Error(ErrorKind::Environment, "the check before the run was ended from outside")
            .found(fmt::format("signal {}", WTERMSIG(status)))
            .cure("see whether the machine ran out of memory");
      }
      if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
    }
    return launch(static_cast<int>(topology.ranks()), command_line(), {});
  }
  return run_rank(config, topology, Membership{}, work);
}

}  // namespace ballast
