#include "ballast/comm/bootstrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <vector>

#include "ballast/base/error.h"

namespace ballast {

namespace {

class Reader {
 public:
  Reader(const Environment& environment, std::string family) : environment_(environment), family_(std::move(family)) {}

  bool has(const std::string& name) const { return environment_.count(name) != 0; }
  std::string text(const std::string& name, const std::string& fallback = "") const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? fallback : found->second;
  }
  const std::string& required(const std::string& name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) {
      throw Error(ErrorKind::Usage, fmt::format("the environment of {} is incomplete: {} is not set", family_, name))
          .at("environment", name)
          .cure("start all ranks with one launcher, or unset its other variables to run one rank alone");
    }
    return found->second;
  }
  int64_t number(const std::string& name, int64_t low, int64_t high) const {
    return parse(name, required(name), low, high);
  }
  int64_t parse(const std::string& name, const std::string& value, int64_t low, int64_t high) const {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < low || number > high) {
      throw Error(ErrorKind::Usage, fmt::format("{} of the environment of {} makes no sense", name, family_))
          .at("environment", name)
          .found("'" + printable(value) + "'")
          .expected(fmt::format("a whole number from {} to {}", low, high));
    }
    return number;
  }

 private:
  const Environment& environment_;
  std::string family_;
};

constexpr int64_t kMostRanks = 1 << 24;

// A port that all ranks of a job derive alike: above the well-known ones, below the range that Linux hands out (32768).
int derived_port(const std::string& job) { return 15000 + static_cast<int>(std::hash<std::string>{}(job) % 15000); }

void set_ranks(Membership& out, const Reader& read, const char* rank, const char* ranks, const char* local_rank,
               const char* local_ranks) {
  out.ranks = read.number(ranks, 1, kMostRanks);
  out.rank = read.number(rank, 0, out.ranks - 1);
  out.local_ranks = read.number(local_ranks, 1, out.ranks);
  out.local_rank = read.number(local_rank, 0, out.local_ranks - 1);
}

Membership from_torchrun(const Environment& environment) {
  const bool own = environment.count("BALLAST_RUN_ID") != 0;
  const Reader read(environment, own ? "the ballast launcher" : "torchrun");
  Membership out;
  out.source = own ? "ballast launcher" : "torchrun";
  set_ranks(out, read, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  out.master = read.required("MASTER_ADDR");
  out.port = static_cast<int>(read.number("MASTER_PORT", 1, 65535));
  out.run_id = own ? read.text("BALLAST_RUN_ID")
                   : read.text("TORCHELASTIC_RUN_ID") + "." + read.text("TORCHELASTIC_RESTART_COUNT", "0");
  out.store_hosted = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (own && out.rank == 0 && read.has("BALLAST_LISTEN_FD"))
    out.listen_fd = static_cast<int>(read.number("BALLAST_LISTEN_FD", 3, 1 << 20));
  return out;
}

Membership from_open_mpi(const Environment& environment) {
  const Reader read(environment, "Open MPI");
  Membership out;
  out.source = "Open MPI";
  set_ranks(out, read, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (read.has("PMIX_RANK") && read.number("PMIX_RANK", 0, kMostRanks) != out.rank) {
    throw Error(ErrorKind::Usage, "PMIX_RANK and OMPI_COMM_WORLD_RANK contradict each other")
        .at("environment", "PMIX_RANK")
        .found(fmt::format("{} and {}", read.text("PMIX_RANK"), out.rank));
  }
  out.run_id = read.text("PMIX_NAMESPACE", read.text("OMPI_MCA_ess_base_jobid", "ompi"));
  out.bound = read.text("OMPI_MCA_orte_bound_at_launch") == "1";
  if (read.has("MASTER_ADDR")) {
    out.master = read.required("MASTER_ADDR");
  } else if (out.local_ranks == out.ranks) {
    out.master = "127.0.0.1";
  } else {
    throw Error(ErrorKind::Usage, "Open MPI does not say which host rank 0 runs on")
        .at("environment", "MASTER_ADDR")
        .cure("give it: mpirun -x MASTER_ADDR=HOST_OF_RANK_0 ...");
  }
  out.port =
      read.has("MASTER_PORT") ? static_cast<int>(read.number("MASTER_PORT", 1, 65535)) : derived_port(out.run_id);
  return out;
}

// "2(x3),1" -> tasks on node `index`.
int64_t tasks_on_node(const Reader& read, const std::string& text, int64_t index) {
  size_t at = 0;
  int64_t node = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string entry = text.substr(at, end - at);
    int64_t repeat = 1;
    const size_t open = entry.find("(x");
    if (open != std::string::npos && entry.back() == ')') {
      repeat = read.parse("SLURM_TASKS_PER_NODE", entry.substr(open + 2, entry.size() - open - 3), 1, kMostRanks);
      entry.resize(open);
    }
    const int64_t tasks = read.parse("SLURM_TASKS_PER_NODE", entry, 1, kMostRanks);
    node += repeat;
    if (index < node) return tasks;
    at = end + 1;
  }
  throw Error(ErrorKind::Usage, "the tasks per node that Slurm lists do not reach this node")
      .at("environment", "SLURM_TASKS_PER_NODE")
      .found(fmt::format("'{}', node {}", printable(text), index));
}

Membership from_slurm(const Environment& environment) {
  const Reader read(environment, "Slurm");
  Membership out;
  out.source = "Slurm";
  const char* tasks = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  out.ranks = read.number(tasks, 1, kMostRanks);
  out.rank = read.number("SLURM_PROCID", 0, out.ranks - 1);
  const std::string per_node = read.text("SLURM_STEP_TASKS_PER_NODE", read.text("SLURM_TASKS_PER_NODE"));
  if (per_node.empty()) read.required("SLURM_TASKS_PER_NODE");
  out.local_ranks = tasks_on_node(read, per_node, read.number("SLURM_NODEID", 0, kMostRanks));
  out.local_rank = read.number("SLURM_LOCALID", 0, out.local_ranks - 1);
  const std::string job = read.has("SLURM_JOB_ID") ? read.required("SLURM_JOB_ID") : read.required("SLURM_JOBID");
  out.run_id = job + "." + read.required("SLURM_STEP_ID");
  if (read.has("MASTER_ADDR")) {
    out.master = read.required("MASTER_ADDR");
  } else {
    const char* list = read.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST"
                       : read.has("SLURM_NODELIST")    ? "SLURM_NODELIST"
                                                       : "SLURM_JOB_NODELIST";
    out.master = first_host(read.required(list));
  }
  out.port =
      read.has("MASTER_PORT") ? static_cast<int>(read.number("MASTER_PORT", 1, 65535)) : derived_port(out.run_id);
  out.bound = read.has("SLURM_CPUS_PER_TASK");
  return out;
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const auto malformed = [&](const char* why) {
    return Error(ErrorKind::Usage, fmt::format("the node list of Slurm is malformed: {}", why))
        .at("environment", "SLURM_NODELIST")
        .found("'" + printable(node_list) + "'")
        .expected("as in node[01-03,07],gpu5");
  };
  std::string host;
  size_t at = 0;
  while (at < node_list.size() && node_list[at] != ',') {
    if (node_list[at] == ']') throw malformed("']' without '['");
    if (node_list[at] != '[') {
      host += node_list[at++];
      continue;
    }
    const size_t close = node_list.find(']', at);
    if (close == std::string::npos) throw malformed("'[' without ']'");
    const std::string range = node_list.substr(at + 1, close - at - 1);
    const std::string first = range.substr(0, range.find_first_of("-,"));
    if (first.empty() || first.find_first_not_of("0123456789") != std::string::npos)
      throw malformed("a range has no first number");
    host += first;
    at = close + 1;
  }
  if (host.empty()) throw malformed("no host");
  return host;
}

Environment process_environment() {
  Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) out[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return out;
}

Membership detect_membership(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.count(name) != 0; };
  // RANK alone is too common a name to mean torchrun by itself without WORLD_SIZE; either of the two does, so a half is
  // seen as a half.
  const bool torchrun = has("RANK") || has("WORLD_SIZE") || has("LOCAL_RANK") || has("LOCAL_WORLD_SIZE");
  const bool open_mpi = has("OMPI_COMM_WORLD_RANK") || has("OMPI_COMM_WORLD_SIZE");
  const bool slurm = has("SLURM_STEP_ID") && has("SLURM_PROCID");
  if (torchrun) {
    Membership out = from_torchrun(environment);
    // torchrun under mpirun or srun is common (one per node) and knows best; bare variables that contradict MPI are a
    // mistake.
    if (open_mpi && !has("TORCHELASTIC_RUN_ID") && !has("BALLAST_RUN_ID")) {
      const Membership other = from_open_mpi(environment);
      if (other.rank != out.rank || other.ranks != out.ranks) {
        throw Error(ErrorKind::Usage, "the environment names two launchers that contradict each other")
            .at("environment", "RANK, OMPI_COMM_WORLD_RANK")
            .found(fmt::format("rank {} of {} by RANK and WORLD_SIZE, rank {} of {} by Open MPI", out.rank, out.ranks,
                               other.rank, other.ranks))
            .cure("unset RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE under mpirun");
      }
    }
    return out;
  }
  if (open_mpi) return from_open_mpi(environment);
  if (slurm) return from_slurm(environment);
  return {};
}

int threads_per_rank(const Membership& membership) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : online;
  // mpirun says "bound" even where it could not bind because of too many ranks: then all of them see every core.
  const bool own = membership.bound && cores < online;
  return std::max(1, own ? cores : cores / static_cast<int>(std::min<int64_t>(membership.local_ranks, 1 << 20)));
}

}  // namespace ballast
