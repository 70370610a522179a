// The roles: ranks that talk over Gloo, ranks that die, stop, fail or come late, and ranks under our own launcher.
#include "tests/comm/roles.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/log.h"
#include "ballast/comm/agreement.h"
#include "ballast/comm/collectives.h"
#include "ballast/comm/launcher.h"
#include "ballast/comm/processes.h"

namespace ballast {
namespace {

ProcessOptions with_deadline(int milliseconds) {
  ProcessOptions options;
  options.common.deadline = std::chrono::milliseconds(milliseconds);
  return options;
}

struct World {
  Membership membership = detect_membership(process_environment());
  std::unique_ptr<Communicator> communicator;
  explicit World(int deadline_ms, int64_t longest_message = int64_t{1} << 30) {
    ProcessOptions options = with_deadline(deadline_ms);
    options.common.longest_message = longest_message;
    const int64_t ranks = membership.ranks;
    const char* wanted = std::getenv("BALLAST_TEST_ROUTE");
    const std::string route = wanted != nullptr ? wanted : "auto";
    if (route == "gloo") options.routes = ProcessRoutes::Gloo;
    if (route == "shm" || route == "shm-apart") options.routes = ProcessRoutes::Shm;
    // Two hosts, one of them with every second rank: pairs of one host and of two in every exchange.
    if (route == "mixed" || route == "shm-apart") options.host = membership.rank % 2 == 0 ? "even" : "odd";
    options.ring_bytes = 64 << 10;
    const Topology topology =
        ranks % 2 == 0 ? Topology({{"pair", 2, {}, {}}, {"node", ranks / 2, {}, {}}}) : Topology::flat(ranks);
    communicator = make_processes(topology, membership, options);
    const std::map<std::string, std::string> names{{"auto", "shm"},
                                                   {"shm", "shm"},
                                                   {"mixed", ranks > 2 ? "shm+gloo" : "gloo"},
                                                   {"gloo", "gloo"},
                                                   {"refused", "gloo"}};
    const std::string name = names.at(route);
    BALLAST_CHECK(communicator->name() == name, "{} is not {}", communicator->name(), name);
  }
};

// Values of the collectives, several lanes at once, bytes per level.
int values() {
  World world(60000, 10000);
  Communicator& communicator = *world.communicator;
  const int64_t rank = communicator.rank(), ranks = communicator.size();
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  int64_t sent = 0;
  for (const char* name : {"fp32", "bf16"}) {
    const Codec& codec = codec_for(parse_codec(name));
    for (const int64_t part : {int64_t{0}, int64_t{1}, ranks + 1, int64_t{4099}, int64_t{100003}}) {
      std::vector<float> source(static_cast<size_t>(ranks * part)), result(static_cast<size_t>(part), -1.f);
      for (size_t i = 0; i < source.size(); ++i)
        source[i] = static_cast<float>(static_cast<int64_t>(i % 50) * (rank + 1));
      std::vector<char> wire(static_cast<size_t>(reduce_wire_bytes(codec, ranks, part)));
      reduce_scatter(communicator, {members, rank, 1, {"reduce", 1}}, codec, source.data(), part, result.data(), false,
                     wire.data());
      std::vector<float> whole(static_cast<size_t>(ranks * part), -1.f);
      std::copy(result.begin(), result.end(), whole.begin() + rank * part);
      gather(communicator, {members, rank, 2, {"gather", 2}}, whole.data(), part * 4);
      for (size_t i = 0; i < whole.size(); ++i) {
        const float expected = static_cast<float>(static_cast<int64_t>(i % 50) * ranks * (ranks + 1) / 2);
        BALLAST_CHECK(whole[i] == expected, "element {} of {}: {} is not {}", i, whole.size(), whole[i], expected);
      }
      sent += (ranks - 1) * (codec.encoded_bytes(part) + part * 4);
    }
  }
  const std::vector<int64_t> counted = communicator.bytes_sent();
  BALLAST_CHECK(std::accumulate(counted.begin(), counted.end(), int64_t{0}) == sent, "{} bytes counted", sent);
  if (ranks == 4)
    BALLAST_CHECK(counted[0] * 2 == counted[1], "two of three peers are in the other pair: {} and {}", counted[0],
                  counted[1]);
  std::vector<std::thread> lanes;
  std::atomic<int> wrong{0};
  for (int64_t lane = 0; lane < 4; ++lane) {
    lanes.emplace_back([&, lane] {
      for (int64_t round = 0; round < 100; ++round) {
        std::vector<int64_t> mine(static_cast<size_t>(1 + round * 37), rank * 1000 + lane * 100 + round),
            got(mine.size());
        const int64_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks,
                      bytes = static_cast<int64_t>(mine.size()) * 8;
        const Send send{next, mine.data(), bytes};
        const Receive receive{previous, got.data(), bytes};
        communicator.exchange({&send, 1}, {&receive, 1}, static_cast<uint64_t>(lane),
                              {"ring", static_cast<uint64_t>(round)});
        for (const int64_t value : got) wrong += value != previous * 1000 + lane * 100 + round;
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  BALLAST_CHECK(wrong == 0, "{} wrong values", wrong.load());
  const auto texts =
      communicator.all_gather_text(std::string(static_cast<size_t>(rank * 3000), 'x') + std::to_string(rank), "texts");
  for (int64_t peer = 0; peer < ranks; ++peer) {
    BALLAST_CHECK(
        texts[static_cast<size_t>(peer)] == std::string(static_cast<size_t>(peer * 3000), 'x') + std::to_string(peer),
        "text of {}", peer);
  }
  const std::vector<int64_t> mine{rank, 1};
  BALLAST_CHECK((all_sum(communicator, mine, "sum") == std::vector<int64_t>{ranks * (ranks - 1) / 2, ranks}), "sum");
  check_same(communicator, {{"config", "abc"}});
  return 0;
}

char byte_of(int64_t from, int64_t to, int64_t message, int64_t at) {
  return static_cast<char>(at * 7 + at / 251 + from * 31 + to * 17 + message * 57);
}

// Every size between all, two messages to each; then lanes whose tags come in another order at every rank.
int sizes() {
  World world(60000, 3 << 20);
  Communicator& communicator = *world.communicator;
  const int64_t rank = communicator.rank(), ranks = communicator.size();
  const auto swap = [&](int64_t bytes, uint64_t tag) {
    std::vector<std::vector<char>> out, in;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (int64_t peer = 0; peer < ranks; ++peer) {
      for (int64_t message = 0; message < 2; ++message) {
        const int64_t length = bytes * (message + 1);
        std::vector<char>& data = out.emplace_back(static_cast<size_t>(length));
        for (int64_t i = 0; i < length; ++i)
          data[static_cast<size_t>(i)] = byte_of(rank, peer, message + static_cast<int64_t>(tag), i);
        in.emplace_back(static_cast<size_t>(length));
        sends.push_back({peer, data.data(), length});
        receives.push_back({peer, in.back().data(), length});
      }
    }
    communicator.exchange(sends, receives, tag, {"swap", tag});
    for (int64_t k = 0; k < 2 * ranks; ++k) {
      const std::vector<char>& data = in[static_cast<size_t>(k)];
      for (size_t i = 0; i < data.size(); ++i) {
        BALLAST_CHECK(data[i] == byte_of(k / 2, rank, k % 2 + static_cast<int64_t>(tag), static_cast<int64_t>(i)),
                      "byte {} of {} of message {} from rank {}", i, data.size(), k % 2, k / 2);
      }
    }
  };
  for (const int64_t bytes : {0, 1, 63, 64, 65, 4096, 8191, 8193, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 3500001})
    swap(bytes, 7);
  std::vector<std::thread> lanes;
  std::atomic<int> wrong{0};
  for (int64_t lane = 0; lane < 4; ++lane) {
    lanes.emplace_back([&, lane] {
      try {
        // The lanes of one rank take the tags in different orders, and so do the ranks.
        for (int64_t round = 0; round < 3; ++round)
          swap(300007 * (lane + 1) + 1, static_cast<uint64_t>(100 + lane + 4 * round));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++wrong;
      }
    });
    if (rank % 2 == 0) usleep(3000);
  }
  for (std::thread& lane : lanes) lane.join();
  BALLAST_CHECK(wrong == 0, "{} lanes failed", wrong.load());
  return 0;
}

// Every rank waits for the others' messages under ascending tags in one thread and sends them under descending ones in
// another, each message longer than what lies in between: one that nobody takes yet must not stand before the next.
int crossed() {
  World world(20000);
  Communicator& communicator = *world.communicator;
  const int64_t rank = communicator.rank(), ranks = communicator.size(), bytes = 400000, messages = 6;
  const int64_t to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int64_t message = 0; message < messages; ++message) {
    for (const bool sends : {true, false}) {
      threads.emplace_back([&, message, sends] {
        try {
          usleep(static_cast<useconds_t>((sends ? messages - message : message) * 5000));
          std::vector<char> data(static_cast<size_t>(bytes), static_cast<char>(sends ? rank * 10 + message : 0));
          const Send send{to, data.data(), bytes};
          const Receive receive{from, data.data(), bytes};
          communicator.exchange({&send, sends ? size_t{1} : 0}, {&receive, sends ? size_t{0} : 1},
                                static_cast<uint64_t>(message), {"crossed", 0});
          if (!sends) wrong += data != std::vector<char>(data.size(), static_cast<char>(from * 10 + message));
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          ++wrong;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  BALLAST_CHECK(wrong == 0, "{} messages failed", wrong.load());
  return 0;
}

// Everybody sends 8 MiB to everybody, again and again; `victim` gets `signal` in the middle.
int interrupted_by(int64_t victim, int signal) {
  World world(3000);
  Communicator& communicator = *world.communicator;
  const int64_t rank = communicator.rank(), ranks = communicator.size(), part = 8 << 20;
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<char> buffer(static_cast<size_t>(ranks * part));
  communicator.barrier("ready");
  if (rank == victim) {
    std::thread([signal] {
      usleep(300000);
      kill(getpid(), signal);
    }).detach();
  }
  try {
    for (uint64_t step = 0;; ++step)
      gather(communicator, {members, rank, 1, {"gather block.3", step}}, buffer.data(), part);
  } catch (const Error& error) {
    communicator.abort(error.summary());
    throw;
  }
}

int fails_by_itself() {
  World world(30000);
  Communicator& communicator = *world.communicator;
  communicator.barrier("ready");
  if (communicator.rank() == 1) {
    communicator.abort("loss is not finite at step 3");
    throw Error(ErrorKind::Numerical, "loss is not finite at step 3");
  }
  int64_t value = 0;
  const Receive receive{communicator.rank() == 0 ? 2 : 0, &value, 8};  // from one that is only waiting, too
  communicator.exchange({}, {&receive, 1}, 5, {"reduce block.0", 44});
  return 0;
}

int comes_late() {
  if (detect_membership(process_environment()).rank == 1) usleep(1500000);
  World world(60000);
  world.communicator->barrier("hello");
  return 0;
}

// Rank 1 may not make files as large as its rings are, in memory or elsewhere.
int is_refused() {
  if (detect_membership(process_environment()).rank == 1) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{60000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  World world(20000);
  world.communicator->barrier("hello");
  return 0;
}

int meets() {
  World world(3000);
  world.communicator->barrier("hello");
  return 0;
}

int says_and_ends(const std::string& how) {
  const Membership me = detect_membership(process_environment());
  std::printf("rank %d of %d by %s\nsecond line\nno newline at the end", static_cast<int>(me.rank),
              static_cast<int>(me.ranks), me.source.c_str());
  std::fflush(stdout);
  std::fprintf(stderr, "to standard error\n");
  set_thread_rank(static_cast<int>(me.rank));
  log_warning("with a rank of its own");
  if (me.rank == 1 && how == "three") return exit_code(ErrorKind::Data);
  if (me.rank == 1 && how == "killed") kill(getpid(), SIGKILL);
  if (how != "well") sleep(600);  // ended by the launcher
  return 0;
}

}  // namespace

int run_role(const std::string& name) {
  const std::string launched = "launch-";
  try {
    if (name.rfind(launched, 0) == 0) {
      return launch(3, {"--role", name.substr(launched.size())},
                    {std::chrono::milliseconds(500), std::chrono::milliseconds(2000)});
    }
    if (name == "values") return values();
    if (name == "sizes") return sizes();
    if (name == "crossed") return crossed();
    if (name == "die") return interrupted_by(2, SIGKILL);
    if (name == "stop") return interrupted_by(2, SIGSTOP);
    if (name == "die-0") return interrupted_by(0, SIGKILL);
    if (name == "stop-0") return interrupted_by(0, SIGSTOP);
    if (name == "fail") return fails_by_itself();
    if (name == "late") return comes_late();
    if (name == "meet") return meets();
    if (name == "refused") return is_refused();
    if (name.rfind("say-", 0) == 0) return says_and_ends(name.substr(4));
    std::fprintf(stderr, "no role '%s'\n", name.c_str());
    return 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error.kind());
  }
}

}  // namespace ballast
