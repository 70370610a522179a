// The test bed for slow links: its ranks, limits and exit codes, and that it leaves nothing behind however it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/apps/tiny_run.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::losses_of;
using testing::program_path;
using testing::steps_of;
using testing::Workplace;
using testing::write_tiny_run;

struct Shell {
  int code;
  std::string text;  // both streams
};

// A line of bash with netlab's path in $netlab.
Shell bash(const std::string& script) {
  const std::string line = "netlab='" BALLAST_SOURCE_DIR "/tools/netlab' bash -c '" + script + "' 2>&1";
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  Shell shell{0, ""};
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) shell.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  shell.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return shell;
}

// Why netlab cannot run here: what it says itself; empty if it can.
std::string obstacle(const std::string& options = "") {
  const Shell check = bash("\"$netlab\" check " + options);
  if (check.code == 0) return "";
  if (check.code != 8) throw std::runtime_error("netlab check ended with " + std::to_string(check.code) + ": " + check.text);
  return check.text.substr(0, check.text.find('\n'));
}

class Netlab : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = obstacle();
    if (!reason.empty()) GTEST_SKIP() << "\nSKIPPED: " << reason << "\n";
  }
};

// After it: what the network of that process has left.
const std::string kNothingLeft =
    " ip netns list | grep \"run$pid\"; ls /run/ballast-netlab | grep \"run$pid\"; ip -o link | grep -E \" (rack|core|up|down|n)[0-9]*[@:]\"; ";

// Rank 0 prints the bytes it received and the seconds from the first connection to the last byte.
const std::string kTransfer = R"("
import os, socket, time
where = (os.environ[\"MASTER_ADDR\"], int(os.environ[\"MASTER_PORT\"]))
if os.environ[\"RANK\"] == \"0\":
    server = socket.create_server(where)
    peer, _ = server.accept()
    began, received = time.monotonic(), 0
    while data := peer.recv(65536):
        received += len(data)
    print(\"received\", received, \"rate\", received / (time.monotonic() - began), flush=True)
else:
    for _ in range(400):
        try:
            peer = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(bytes(6000000))
")";

double number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + word.size()));
}

TEST_F(Netlab, LimitsWhatANodeSendsCountsItAndLeavesNothing) {
  const Shell shell = bash("\"$netlab\" run --nodes 2 --rate 100mbit --bytes -- python3 -c " + kTransfer + " & pid=$!; wait $pid; code=$?;" + kNothingLeft +
                           "exit $code");
  EXPECT_EQ(shell.code, 0) << shell.text;
  EXPECT_EQ(number_after(shell.text, "received"), 6'000'000) << shell.text;
  const double rate = number_after(shell.text, "rate");
  EXPECT_GT(rate, 0) << shell.text;
  EXPECT_LT(rate, 100e6 / 8 * 1.3) << shell.text;  // the bucket holds 256 KiB
  // The kernel's counters hold the payload and at most a few percent of headers and repeated packets.
  const double left = number_after(shell.text, "node 1 sent");
  EXPECT_GE(left, 6'000'000) << shell.text;
  EXPECT_LT(left, 6'600'000) << shell.text;
  EXPECT_THAT(shell.text, Not(HasSubstr("run")));
}

TEST_F(Netlab, GivesRanksTheEnvironmentOfTorchrunOnUnevenNodes) {
  const Shell shell = bash(
      "\"$netlab\" run --nodes 3 --racks 2 --ranks-per-node 2,1,1 --threads 3 -- "
      "bash -c \"echo rank \\$RANK/\\$WORLD_SIZE local \\$LOCAL_RANK/\\$LOCAL_WORLD_SIZE at \\$(hostname -I) to \\$MASTER_ADDR over \\$GLOO_SOCKET_IFNAME with \\$OMP_NUM_THREADS\"");
  EXPECT_EQ(shell.code, 0) << shell.text;
  for (const char* line : {"rank 0/4 local 0/2 at 10.77.0.1 to 10.77.0.1 over eth0 with 3\n", "[rank 1] rank 1/4 local 1/2 at 10.77.0.1 to 10.77.0.1 over eth0 with 3\n",
                           "[rank 2] rank 2/4 local 0/1 at 10.77.0.2 to 10.77.0.1 over eth0 with 3\n", "[rank 3] rank 3/4 local 0/1 at 10.77.0.3 to 10.77.0.1 over eth0 with 3\n"}) {
    EXPECT_THAT(shell.text, HasSubstr(line));
  }
}

TEST_F(Netlab, LimitsTheUplinkOfARack) {
  const Shell shell = bash("\"$netlab\" run --nodes 2 --racks 2 --rate 1gbit --rack-rate 100mbit --bytes -- python3 -c " + kTransfer);
  EXPECT_EQ(shell.code, 0) << shell.text;
  EXPECT_EQ(number_after(shell.text, "received"), 6'000'000) << shell.text;
  EXPECT_LT(number_after(shell.text, "rate"), 100e6 / 8 * 1.3) << shell.text;
  EXPECT_GE(number_after(shell.text, "rack 1 sent"), 6'000'000) << shell.text;
}

TEST_F(Netlab, EndsAllWhenOneRankIsKilledAndLeavesNothing) {
  const Shell shell = bash("\"$netlab\" run --nodes 2 --settle 0 -- bash -c \"[ \\$RANK = 1 ] && kill -9 \\$\\$; exec sleep 300\" & pid=$!; wait $pid; code=$?; "
                           "echo \"lines:\";" + kNothingLeft + "exit $code");
  EXPECT_EQ(shell.code, 128 + 9) << shell.text;
  EXPECT_THAT(shell.text, HasSubstr("rank 1 ended with signal SIGKILL"));
  EXPECT_THAT(shell.text.substr(shell.text.find("lines:\n") + 7), IsEmpty());
}

TEST_F(Netlab, GivesTheStatusOfTheFirstFailure) {
  const Shell shell = bash("\"$netlab\" run --nodes 2 --settle 0 -- bash -c \"[ \\$RANK = 1 ] && exit 7; exec sleep 300\"");
  EXPECT_EQ(shell.code, 7) << shell.text;
}

TEST_F(Netlab, TakesDownWhenInterruptedAndCleansWhatAKillLeft) {
  const Shell stopped = bash("\"$netlab\" run -- bash -c \"echo started; exec sleep 300\" > >(grep -m1 -o started) & pid=$!; "
                             "until ip netns pids \"ballastnet-run$pid.n1\" 2>/dev/null | grep -q .; do sleep 0.05; done; kill -TERM $pid; wait $pid; code=$?; "
                             "echo \"lines:\";" + kNothingLeft + "exit $code");
  EXPECT_EQ(stopped.code, 128 + 15) << stopped.text;
  EXPECT_THAT(stopped.text.substr(stopped.text.find("lines:\n") + 7), IsEmpty());
  const Shell killed = bash("\"$netlab\" run -- sleep 300 & pid=$!; "
                            "until ip netns pids \"ballastnet-run$pid.n1\" 2>/dev/null | grep -q .; do sleep 0.05; done; kill -9 $pid; wait $pid 2>/dev/null; "
                            "\"$netlab\" status | grep \"run$pid.*leftover\" && \"$netlab\" down --name run$pid; code=$?; echo \"lines:\";" + kNothingLeft + "exit $code");
  EXPECT_EQ(killed.code, 0) << killed.text;
  EXPECT_THAT(killed.text, HasSubstr("leftover"));
  EXPECT_THAT(killed.text.substr(killed.text.find("lines:\n") + 7), IsEmpty());
}

TEST_F(Netlab, RefusesADelayWhereTheKernelHasNoNetem) {
  const std::string reason = obstacle("--delay 1ms");
  const Shell shell = bash("\"$netlab\" run --nodes 2 --delay 1ms -- true");
  if (reason.empty()) {
    EXPECT_EQ(shell.code, 0) << shell.text;
  } else {
    EXPECT_EQ(shell.code, 8) << shell.text;
    EXPECT_THAT(shell.text, HasSubstr("no netem"));
  }
}

// A topology that says "a node has 4 ranks" on two hosts of two: the run goes on as the topology says, all bytes at its one level, and rank 0 says
// what the hosts are. With that topology nothing is said, and a level of its own counts what crosses.
TEST_F(Netlab, ATopologyThatTheHostsDoNotFitIsToldByRankZero) {
  const Workplace place;
  write_tiny_run(place);
  const auto train = [&](const std::string& run, const std::string& topology, const std::string& placement) {
    return bash("cd " + place.path().string() + " && \"$netlab\" run --nodes 2 --ranks-per-node 2 --threads 1 -- " + program_path() + " train c.yaml run.dir=" + run +
                " train.steps=2 train.threads=1 \"topology=" + topology + "\" \"placement=" + placement + "\"");
  };
  const Shell wrong = train("wrong", "{node: 4}", "zero3");
  ASSERT_EQ(wrong.code, 0) << wrong.text;
  EXPECT_THAT(wrong.text, HasSubstr("level 'node' of the topology crosses hosts: its unit has 4 ranks, the 2 hosts 2 on each"));
  EXPECT_THAT(wrong.text, HasSubstr("the hosts are topology={node: 2, cluster: 2}"));
  EXPECT_THAT(wrong.text.substr(wrong.text.find("crosses hosts") + 1), Not(HasSubstr("crosses hosts")));   // by one rank, once
  const Shell right = train("right", "{node: 2, cluster: 2}", "hpz(node)");
  ASSERT_EQ(right.code, 0) << right.text;
  EXPECT_THAT(right.text, Not(HasSubstr("crosses hosts")));
  const auto bytes = [&](const char* run) { return steps_of(place, run).at(1).at("bytes"); };
  EXPECT_EQ(bytes("wrong").size(), 1u);
  ASSERT_EQ(bytes("right").size(), 2u);
  // Three movements of zero3, one of which stays within a node.
  EXPECT_LT(bytes("right").at("cluster").get<int64_t>(), bytes("wrong").at("node").get<int64_t>());
  EXPECT_EQ(losses_of(place, "right").size(), 2u);
}

TEST(NetlabUsage, RefusesNonsense) {
  EXPECT_EQ(bash("\"$netlab\" run --nodes 2").code, 2);
  EXPECT_EQ(bash("\"$netlab\" run --nodes 2 --racks 3 -- true").code, 2);
  const Shell many = bash("\"$netlab\" run --nodes 251 -- true");
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.text, HasSubstr("251 nodes: at most 250"));
  EXPECT_EQ(bash("\"$netlab\" run --nodes 3 --ranks-per-node 1,2 -- true").code, 2);
  EXPECT_EQ(bash("\"$netlab\" run --nodes 2 --rack-rate 1mbit -- true").code, 2);
  EXPECT_EQ(bash("\"$netlab\" run --nodes 2 --threads 0 -- true").code, 2);
  for (const std::string wrong : {"--rate 200", "--rate fast", "--rate 0mbit", "--rate=-1mbit", "--rack-rate 1xbit", "--delay 1", "--loss 0.1", "--loopback-rate 1gb"}) {
    const Shell refused = bash("\"$netlab\" run --nodes 2 --racks 2 " + wrong + " -- true");
    EXPECT_EQ(refused.code, 2) << wrong << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("is not a number above 0 with a unit")) << wrong;
  }
}

}  // namespace
}  // namespace ballast
