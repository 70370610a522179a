// Recorded environments of torchrun, Open MPI and Slurm, and what is wrong with broken ones; ranks that were started
// differently.
#include "ballast/comm/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "ballast/comm/agreement.h"
#include "tests/comm/thread_ranks.h"

namespace ballast {
namespace {

using testing::HasSubstr;

const Environment kTorchrun{{"LOCAL_RANK", "1"},
                            {"RANK", "5"},
                            {"GROUP_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"WORLD_SIZE", "8"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29511"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"OMP_NUM_THREADS", "1"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                           {"PMIX_RANK", "2"},
                           {"PMIX_NAMESPACE", "1234567"},
                           {"OMPI_MCA_orte_bound_at_launch", "1"}};
const Environment kSlurm{{"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "7"},
                         {"SLURM_LOCALID", "2"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_TASKS_PER_NODE", "2(x2),3"},
                         {"SLURM_JOB_ID", "998"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NODELIST", "gpu[07-08,12]"},
                         {"SLURM_JOB_NODELIST", "gpu[01-20]"}};

TEST(Bootstrap, ReadsTorchrun) {
  const Membership me = detect_membership(kTorchrun);
  EXPECT_EQ(me.source, "torchrun");
  EXPECT_EQ(me.rank, 5);
  EXPECT_EQ(me.ranks, 8);
  EXPECT_EQ(me.local_rank, 1);
  EXPECT_EQ(me.local_ranks, 4);
  EXPECT_EQ(me.master, "node0");
  EXPECT_EQ(me.port, 29511);
  EXPECT_TRUE(me.store_hosted);
  EXPECT_EQ(me.run_id, "none.2");
}

TEST(Bootstrap, ReadsOpenMpi) {
  const Membership me = detect_membership(kOpenMpi);
  EXPECT_EQ(me.source, "Open MPI");
  EXPECT_EQ(me.rank, 2);
  EXPECT_EQ(me.ranks, 3);
  EXPECT_EQ(me.local_rank, 2);
  EXPECT_EQ(me.local_ranks, 3);
  EXPECT_EQ(me.master, "127.0.0.1");
  EXPECT_GE(me.port, 15000);
  EXPECT_LT(me.port, 30000);
  EXPECT_TRUE(me.bound);
  Environment other = kOpenMpi;
  other["OMPI_COMM_WORLD_RANK"] = other["PMIX_RANK"] = "0";
  other["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_EQ(detect_membership(other).port, me.port);
  other["MASTER_PORT"] = "4000";
  EXPECT_EQ(detect_membership(other).port, 4000);
}

TEST(Bootstrap, ReadsSlurm) {
  const Membership me = detect_membership(kSlurm);
  EXPECT_EQ(me.source, "Slurm");
  EXPECT_EQ(me.rank, 6);
  EXPECT_EQ(me.ranks, 7);
  EXPECT_EQ(me.local_rank, 2);
  EXPECT_EQ(me.local_ranks, 3);
  EXPECT_EQ(me.master, "gpu07");
  EXPECT_EQ(me.run_id, "998.0");
}

TEST(Bootstrap, WithoutALauncherItIsOneRankAlone) {
  // A batch script of Slurm that did not use srun has no step.
  for (const Environment& environment :
       {Environment{}, Environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}}) {
    const Membership me = detect_membership(environment);
    EXPECT_EQ(me.ranks, 1);
    EXPECT_EQ(me.rank, 0);
    EXPECT_EQ(me.source, "no launcher");
  }
}

TEST(Bootstrap, OneLauncherInsideAnotherIsReadFromTheInnerOne) {
  Environment both = kTorchrun;
  both.insert(kSlurm.begin(), kSlurm.end());
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(detect_membership(both).source, "torchrun");
  Environment mpi_in_slurm = kSlurm;
  mpi_in_slurm.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(detect_membership(mpi_in_slurm).source, "Open MPI");
}

struct Broken {
  Environment base;
  std::string name, value;  // "-" removes it
  std::string says;
};

TEST(Bootstrap, BrokenEnvironmentsAreRefusedByName) {
  const std::vector<Broken> table{
      {kTorchrun, "RANK", "-", "RANK is not set"},
      {kTorchrun, "WORLD_SIZE", "-", "WORLD_SIZE is not set"},
      {kTorchrun, "LOCAL_RANK", "-", "LOCAL_RANK is not set"},
      {kTorchrun, "LOCAL_WORLD_SIZE", "-", "LOCAL_WORLD_SIZE is not set"},
      {kTorchrun, "MASTER_ADDR", "-", "MASTER_ADDR is not set"},
      {kTorchrun, "MASTER_PORT", "-", "MASTER_PORT is not set"},
      {kTorchrun, "MASTER_ADDR", "", "MASTER_ADDR is not set"},
      {kTorchrun, "RANK", "8", "RANK of the environment of torchrun makes no sense"},
      {kTorchrun, "RANK", "-1", "from 0 to 7"},
      {kTorchrun, "RANK", "two", "'two'"},
      {kTorchrun, "RANK", "5 ", "'5 '"},
      {kTorchrun, "WORLD_SIZE", "0", "WORLD_SIZE"},
      {kTorchrun, "WORLD_SIZE", "99999999999999999999", "WORLD_SIZE"},
      {kTorchrun, "LOCAL_WORLD_SIZE", "9", "LOCAL_WORLD_SIZE"},
      {kTorchrun, "LOCAL_RANK", "4", "LOCAL_RANK"},
      {kTorchrun, "MASTER_PORT", "65536", "MASTER_PORT"},
      {kTorchrun, "MASTER_PORT", "0", "MASTER_PORT"},
      {{}, "RANK", "0", "WORLD_SIZE is not set"},
      {{}, "LOCAL_RANK", "0", "WORLD_SIZE is not set"},
      {kOpenMpi, "OMPI_COMM_WORLD_SIZE", "-", "OMPI_COMM_WORLD_SIZE is not set"},
      {kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {kOpenMpi, "PMIX_RANK", "1", "PMIX_RANK and OMPI_COMM_WORLD_RANK contradict"},
      {kSlurm, "SLURM_NTASKS", "-", "SLURM_NTASKS is not set"},
      {kSlurm, "SLURM_PROCID", "7", "SLURM_PROCID"},
      {kSlurm, "SLURM_LOCALID", "-", "SLURM_LOCALID is not set"},
      {kSlurm, "SLURM_NODEID", "3", "tasks per node"},
      {kSlurm, "SLURM_TASKS_PER_NODE", "-", "SLURM_TASKS_PER_NODE is not set"},
      {kSlurm, "SLURM_TASKS_PER_NODE", "2(x),3", "SLURM_TASKS_PER_NODE"},
      {kSlurm, "SLURM_TASKS_PER_NODE", ",", "SLURM_TASKS_PER_NODE"},
      {kSlurm, "SLURM_STEP_NODELIST", "gpu[07", "'[' without ']'"},
      {kSlurm, "SLURM_JOB_ID", "-", "SLURM_JOBID is not set"},
  };
  for (const Broken& row : table) {
    Environment environment = row.base;
    environment[row.name] = row.value;
    if (row.value == "-") environment.erase(row.name);
    try {
      detect_membership(environment);
      ADD_FAILURE() << row.name << "=" << row.value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_THAT(error.what(), HasSubstr(row.says)) << row.name << "=" << row.value;
    }
  }
}

TEST(Bootstrap, ContradictionsBetweenLaunchersAreRefused) {
  Environment both = kOpenMpi;
  for (const auto& [name, value] : Environment{{"RANK", "0"},
                                               {"WORLD_SIZE", "3"},
                                               {"LOCAL_RANK", "0"},
                                               {"LOCAL_WORLD_SIZE", "3"},
                                               {"MASTER_ADDR", "a"},
                                               {"MASTER_PORT", "1"}})
    both[name] = value;
  EXPECT_THROW(detect_membership(both), Error);
  both["RANK"] = both["LOCAL_RANK"] = "2";
  EXPECT_EQ(detect_membership(both).rank, 2);
}

TEST(Bootstrap, OpenMpiOverSeveralHostsNeedsAMaster) {
  Environment environment = kOpenMpi;
  environment["OMPI_COMM_WORLD_SIZE"] = "6";
  EXPECT_THROW(detect_membership(environment), Error);
  environment["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(detect_membership(environment).master, "10.0.0.1");
}

TEST(Bootstrap, FirstHostOfNodeLists) {
  for (const auto& [list, host] :
       std::map<std::string, std::string>{{"login1", "login1"},
                                          {"a,b,c", "a"},
                                          {"gpu[07-09,12],login1", "gpu07"},
                                          {"gpu[3]", "gpu3"},
                                          {"r[1-2]n[04-07]-ib,x", "r1n04-ib"},
                                          {"node-[001,005].cluster.org", "node-001.cluster.org"}}) {
    EXPECT_EQ(first_host(list), host);
  }
  for (const char* list : {"", ",a", "a[", "a[1-2", "a]1[", "a[]", "a[x-2]", "a[-3]", "[", "]"})
    EXPECT_THROW(first_host(list), Error) << list;
}

TEST(Bootstrap, CoresAreSharedByTheRanksOfAHost) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const int cores = CPU_COUNT(&mask);
  Membership membership;
  EXPECT_EQ(threads_per_rank(membership), cores);
  membership.ranks = membership.local_ranks = 2;
  EXPECT_EQ(threads_per_rank(membership), std::max(1, cores / 2));
  membership.local_ranks = 1000000;
  EXPECT_EQ(threads_per_rank(membership), 1);
  membership.bound = true;
  EXPECT_EQ(threads_per_rank(membership), cores < static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) ? cores : 1);
}

TEST(Agreement, NamesTheFirstItemThatDiffersAndBothRanks) {
  const auto errors = errors_of_ranks(Topology::flat(4), [](Communicator& communicator) {
    const std::string data = communicator.rank() == 2 ? "9f" : "77";
    check_same(communicator, {{"binary", "1"}, {"data", data}, {"topology", communicator.rank() == 3 ? "b" : "a"}});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("peer lost: rank 0 and rank 2 were started differently: 'data' differs"));
    EXPECT_THAT(error, HasSubstr("77 on rank 0, 9f on rank 2"));
  }
  for (const std::string& error : errors_of_ranks(Topology::flat(3), [](Communicator& communicator) {
         check_same(communicator, {{"binary", "1"}});
       }))
    EXPECT_EQ(error, "");
  const auto missing = errors_of_ranks(Topology::flat(2), [](Communicator& communicator) {
    std::vector<std::pair<std::string, std::string>> items{{"binary", "1"}};
    if (communicator.rank() == 1) items.push_back({"data", "2"});
    check_same(communicator, items);
  });
  for (const std::string& error : missing) EXPECT_THAT(error, HasSubstr("'(nothing)' and 'data' differs"));
}

}  // namespace
}  // namespace ballast
