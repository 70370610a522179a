// Real processes over TCP, shared memory and both, and under the launcher: values, and every way in which a rank can be
// lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/comm/process_ranks.h"

namespace ballast {
namespace {

using testing::HasSubstr;
constexpr int kPeerLost = 5;

void expect_all_well(const std::vector<Ended>& ended) {
  for (size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_TRUE(ended[rank].in_time) << "rank " << rank << " hung";
    EXPECT_EQ(ended[rank].code, 0) << "rank " << rank << ": " << ended[rank].text;
  }
}

// Everybody but `lost` ends with PeerLost and names it.
void expect_named(const std::vector<Ended>& ended, size_t lost) {
  for (size_t rank = 0; rank < ended.size(); ++rank) {
    if (rank == lost) continue;
    EXPECT_TRUE(ended[rank].in_time) << "rank " << rank << " hung";
    EXPECT_EQ(ended[rank].code, kPeerLost) << "rank " << rank << ": " << ended[rank].text;
    EXPECT_THAT(ended[rank].text, HasSubstr("rank " + std::to_string(lost) + " is lost to rank " +
                                            std::to_string(rank) + " in 'gather block.3' (sequence "));
  }
}

// The cases that hold whatever the messages go through: TCP, shared memory, or both, by peer.
class Processes : public testing::TestWithParam<const char*> {
 protected:
  std::vector<Ended> run(int ranks, const std::string& role, int absent = -1, int stopped = -1) {
    return run_processes(ranks, role, absent, stopped, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Routes, Processes, testing::Values("gloo", "shm", "mixed"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Processes, CollectivesLanesAndAgreementsHaveTheRightValues) {
  for (const int ranks : {2, 3, 4}) expect_all_well(run(ranks, "values"));
}

TEST_P(Processes, MessagesOfAllSizesAndLanesArriveWhole) {
  for (const int ranks : {2, 4}) expect_all_well(run(ranks, "sizes"));
}

TEST_P(Processes, AMessageThatNobodyTakesYetStandsInNobodysWay) { expect_all_well(run(3, "crossed")); }

TEST_P(Processes, AKilledRankIsNamedByAllOthers) {
  const auto ended = run(4, "die");
  EXPECT_EQ(ended[2].code, -SIGKILL);
  expect_named(ended, 2);
}

TEST_P(Processes, AStoppedRankIsNamedByAllOthers) { expect_named(run(4, "stop", -1, 2), 2); }

TEST_P(Processes, TheLossOfTheRankThatKeepsTheStoreIsNamedToo) {
  expect_named(run(3, "die-0"), 0);
  expect_named(run(3, "stop-0", -1, 0), 0);
}

TEST_P(Processes, ARankThatFailsTellsTheOthersWhy) {
  const auto ended = run(3, "fail");
  EXPECT_EQ(ended[1].code, 7) << ended[1].text;
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ended[rank].code, kPeerLost) << ended[rank].text;
    EXPECT_THAT(ended[rank].text,
                HasSubstr("rank 1 is lost to rank " + std::to_string(rank) + " in 'reduce block.0' (sequence 44)"));
    EXPECT_THAT(ended[rank].text, HasSubstr("loss is not finite at step 3"));
  }
}

TEST_P(Processes, ALateRankIsWaitedFor) { expect_all_well(run(3, "late")); }

TEST_P(Processes, ARankThatNeverComesIsNamed) {
  const auto ended = run(3, "meet", 1);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ended[rank].code, kPeerLost) << ended[rank].text;
    EXPECT_THAT(ended[rank].text, HasSubstr("rank 1 did not come within 3 s"));
  }
}

// Names in /dev/shm and local sockets that are bound to a name of ours.
std::set<std::string> names_in_use() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path());
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find("@ballast-");
    if (at != std::string::npos) names.insert(line.substr(at));
  }
  return names;
}

TEST(SharedMemory, LeavesNothingBehindHoweverItsRanksEnd) {
  const std::set<std::string> before = names_in_use();
  expect_all_well(run_processes(3, "late", -1, -1, "shm"));
  expect_named(run_processes(3, "die-0", -1, -1, "shm"), 0);
  for (const std::string& name : names_in_use()) EXPECT_TRUE(before.contains(name)) << name;
}

TEST(SharedMemory, TwoRunsAtOnceDoNotMeet) {
  std::vector<Ended> one, other;
  std::thread at_once([&] { one = run_processes(2, "sizes", -1, -1, "shm"); });
  other = run_processes(2, "sizes", -1, -1, "shm");
  at_once.join();
  expect_all_well(one);
  expect_all_well(other);
}

TEST(SharedMemory, ARankThatTheSystemRefusesTurnsAllToTcpWithAWarningOrAnError) {
  const auto ended = run_processes(3, "refused", -1, -1, "refused");
  expect_all_well(ended);
  EXPECT_THAT(ended[0].text, HasSubstr("no shared memory between the ranks of one host: they talk over TCP"));
  EXPECT_THAT(ended[0].text,
              HasSubstr("rank 1: cannot reserve 140 KiB of memory shared between processes: File too large"));
  for (const Ended& each : run_processes(3, "refused", -1, -1, "shm")) {
    EXPECT_EQ(each.code, 8) << each.text;
    EXPECT_THAT(each.text, HasSubstr("no shared memory between the ranks of one host"));
    EXPECT_THAT(each.text,
                HasSubstr("rank 1: cannot reserve 140 KiB of memory shared between processes: File too large"));
  }
}

TEST(SharedMemory, RanksOfSeveralHostsAreRefusedWhereItIsDemanded) {
  for (const Ended& ended : run_processes(2, "meet", -1, -1, "shm-apart")) {
    EXPECT_EQ(ended.code, 2) << ended.text;
    EXPECT_THAT(ended.text, HasSubstr("ranks on several hosts have no shared memory"));
    EXPECT_THAT(ended.text, HasSubstr("comm.backend=auto"));
  }
}

TEST(Meeting, APortInUseIsSaid) {
  int port = 0;
  const int fd = take_port(port, true);
  ProcessRank process("meet", {{"RANK", "0"},
                               {"WORLD_SIZE", "1"},
                               {"LOCAL_RANK", "0"},
                               {"LOCAL_WORLD_SIZE", "1"},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", std::to_string(port)}});
  const Ended ended = process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(90));
  close(fd);
  EXPECT_EQ(ended.code, 8) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("rank 0 cannot listen on port " + std::to_string(port)));
}

TEST(Meeting, AnUnknownInterfaceIsRefusedWithTheList) {
  int port = 0;
  close(take_port(port, false));
  ProcessRank process("meet", {{"RANK", "0"},
                               {"WORLD_SIZE", "1"},
                               {"LOCAL_RANK", "0"},
                               {"LOCAL_WORLD_SIZE", "1"},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", std::to_string(port)},
                               {"GLOO_SOCKET_IFNAME", "nosuch7"}});
  const Ended ended = process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(90));
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("no network interface 'nosuch7'"));
  EXPECT_THAT(ended.text, HasSubstr("lo"));
}

Ended launched(const std::string& role) {
  ProcessRank process("launch-" + role, {});
  return process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(90));
}

TEST(Launcher, PrefixesTheLinesOfAllRanksButTheFirst) {
  const Ended ended = launched("say-well");
  EXPECT_EQ(ended.code, 0) << ended.text;
  for (const char* line :
       {"rank 0 of 3 by ballast launcher\nsecond line\n", "\n[rank 1] rank 1 of 3 by ballast launcher\n",
        "\n[rank 1] second line\n", "\n[rank 2] second line\n", "\n[rank 2] no newline at the end\n",
        "\n[rank 1] to standard error\n", "\n[rank 2] warning: with a rank of its own\n"}) {
    EXPECT_THAT("\n" + ended.text, HasSubstr(line));
  }
  EXPECT_EQ(ended.text.find("[rank 0] [rank"), std::string::npos);
  EXPECT_EQ(ended.text.find("[rank 1] [rank"), std::string::npos);
}

TEST(Launcher, EndsAllWhenOneFailsAndKeepsItsExitCode) {
  const Ended ended = launched("say-three");
  EXPECT_TRUE(ended.in_time);
  EXPECT_EQ(ended.code, 3) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("rank 1 ended with exit code 3"));
}

TEST(Launcher, ARankKilledByASignalIsALostPeer) {
  const Ended ended = launched("say-killed");
  EXPECT_TRUE(ended.in_time);
  EXPECT_EQ(ended.code, kPeerLost) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("rank 1 was killed by signal 9"));
}

TEST(Launcher, TheExitCodeIsThatOfTheRankThatFailedNotOfThoseThatLostIt) {
  const Ended ended = launched("fail");
  EXPECT_EQ(ended.code, 7) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("loss is not finite"));
}

TEST(Launcher, ItsRanksFindEachOther) { EXPECT_EQ(launched("values").code, 0); }

TEST(Launcher, PassesSignalsOn) {
  ProcessRank process("launch-say-long", {});
  for (int i = 0; i < 3000; ++i) {  // until all three are there
    const std::string text = process.text();
    if (text.find("rank 0 of 3") != std::string::npos && text.find("[rank 1] second") != std::string::npos &&
        text.find("[2] second") != std::string::npos)
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(process.pid(), SIGTERM);
  const Ended ended = process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(90));
  EXPECT_TRUE(ended.in_time);
  EXPECT_EQ(ended.code, kPeerLost) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("was killed by signal 15"));
}

}  // namespace
}  // namespace ballast
