// Links of thread-ranks: exact arrival times of the buckets, and transfers that are never faster than their links.
#include "ballast/comm/rate_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/comm/thread_ranks.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using Clock = RateLimit::Clock;

// Seconds from `now` until a message is there.
double after(RateLimit& limit, Clock::time_point now, int64_t from, int64_t to, int64_t bytes) {
  return std::chrono::duration<double>(limit.arrival(from, to, bytes, now) - now).count();
}

// Times count from the making of the limit, which is a little before `now`: the buckets are empty then.
Clock::time_point later() { return Clock::now() + std::chrono::seconds(1); }
constexpr double kNear = 1e-6;

Topology two_nodes() { return Topology({{"node", 2, {}, {}}, {"cluster", 2, 1e6, 0.25}}); }

TEST(RateLimit, ATransferTakesItsBytesOverTheRateAndTheLatency) {
  RateLimit limit(two_nodes());
  const auto now = later();
  EXPECT_NEAR(after(limit, now, 0, 2, 500'000), 0.5 + 0.25, kNear);
  EXPECT_EQ(after(limit, now, 0, 1, 500'000), 0);  // inside a node there is no limit
  EXPECT_EQ(after(limit, now, 3, 3, 500'000), 0);
}

TEST(RateLimit, MessagesOfANodeShareItsLinkEachWay) {
  RateLimit limit(two_nodes());
  const auto now = later();
  EXPECT_NEAR(after(limit, now, 0, 2, 1'000'000), 1.25, kNear);
  EXPECT_NEAR(after(limit, now, 1, 3, 1'000'000), 2.25, kNear);  // the same node's link
  EXPECT_NEAR(after(limit, now, 2, 0, 1'000'000), 1.25, kNear);  // the other way
  EXPECT_NEAR(after(limit, now + std::chrono::seconds(10), 0, 2, 1'000'000), 1.25, kNear);  // idle since: no burst saved up
}

TEST(RateLimit, TheReceiversLinkIsShared) {
  RateLimit limit(Topology({{"cluster", 3, 1e6, {}}}));
  const auto now = later();
  EXPECT_NEAR(after(limit, now, 0, 2, 1'000'000), 1, kNear);
  EXPECT_NEAR(after(limit, now, 1, 2, 1'000'000), 2, kNear);
  EXPECT_NEAR(after(limit, now, 1, 0, 1'000'000), 2, kNear);  // waits for what rank 1 sends already
}

TEST(RateLimit, TheSlowestLevelOnTheWayDecidesAndTheOthersStayFree) {
  RateLimit limit(Topology({{"pair", 2, 8e6, {}}, {"node", 2, 4e6, 0.5}, {"cluster", 2, 1e6, 0.125}}));
  const auto now = later();
  EXPECT_NEAR(after(limit, now, 0, 4, 1'000'000), 1 + 0.125, kNear);
  // The long transfer took rank 0 for 1/8 s and its pair for 1/4 s, no longer.
  EXPECT_NEAR(after(limit, now, 0, 1, 1'000'000), 0.25, kNear);
  EXPECT_NEAR(after(limit, now, 1, 2, 1'000'000), 0.25 + 0.25 + 0.5, kNear);
}

TEST(RateLimit, MessagesOfAPairKeepTheirOrder) {
  RateLimit limit(Topology({{"node", 2, 3e6, 0.01}, {"cluster", 4, 1e6, 0.02}}));
  const auto now = later();
  double last = 0;
  for (int i = 0; i < 200; ++i) {
    after(limit, now, i % 6 == 1 ? 0 : i % 6, 7, 1 + i * 7919 % 30'000);  // traffic that crosses it
    const double there = after(limit, now, 1, 6, 1 + i * 104729 % 50'000);
    EXPECT_GE(there, last);
    last = there;
  }
}

TEST(RateLimit, RefusesATopologyThatLimitsNothing) {
  try {
    CommunicatorOptions options;
    options.limit_links = true;
    make_in_process(Topology::flat(2), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_THAT(error.what(), HasSubstr("{node: 2} = 2 ranks"));
  }
}

CommunicatorOptions limited(int deadline_ms = 20000) {
  CommunicatorOptions options{std::chrono::milliseconds(deadline_ms)};
  options.limit_links = true;
  return options;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Every rank sends `bytes` to the rank `distance` further; by rank, when it had all, in seconds since the first one began.
std::vector<double> ring_seconds(const Topology& topology, int64_t bytes, int64_t distance) {
  std::vector<Clock::time_point> begins(static_cast<size_t>(topology.ranks())), ends(begins.size());
  const auto errors = errors_of_ranks(
      topology,
      [&](Communicator& communicator) {
        const int64_t me = communicator.rank(), ranks = communicator.size();
        const int64_t to = (me + distance) % ranks, from = (me + ranks - distance) % ranks;
        std::vector<char> mine(static_cast<size_t>(bytes), static_cast<char>(me + 1)), got(mine.size());
        communicator.barrier("begin");
        begins[static_cast<size_t>(me)] = Clock::now();
        const Send send{to, mine.data(), bytes};
        const Receive receive{from, got.data(), bytes};
        communicator.exchange({&send, 1}, {&receive, 1}, 3, {"ring", 1});
        ends[static_cast<size_t>(me)] = Clock::now();
        EXPECT_EQ(got, std::vector<char>(got.size(), static_cast<char>(from + 1)));
      },
      limited());
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  const auto first = *std::min_element(begins.begin(), begins.end());
  std::vector<double> seconds;
  for (const auto end : ends) seconds.push_back(std::chrono::duration<double>(end - first).count());
  return seconds;
}

TEST(LimitedLinks, AnExchangeIsNeverFasterThanItsLink) {
  const Topology topology({{"cluster", 2, 4e6, 0.02}});
  for (const int64_t bytes : {int64_t{1}, int64_t{50'000}, int64_t{400'000}}) {  // below and above the early copy
    for (const double seconds : ring_seconds(topology, bytes, 1)) {
      EXPECT_GE(seconds, static_cast<double>(bytes) / 4e6 + 0.02) << bytes;
    }
  }
}

TEST(LimitedLinks, RanksOfANodeShareItsLink) {
  const std::vector<double> seconds = ring_seconds(Topology({{"node", 2, {}, {}}, {"cluster", 2, 4e6, {}}}), 400'000, 2);
  // Both ranks of a node send over its one link: it is busy for 0.2 s.
  EXPECT_GE(*std::max_element(seconds.begin(), seconds.end()), 0.2);
  for (const double one : seconds) EXPECT_GE(one, 0.1);
}

TEST(LimitedLinks, MessagesArriveInOrderAndUnharmed) {
  const auto errors = errors_of_ranks(
      Topology({{"cluster", 2, 50e6, 0.001}}),
      [](Communicator& communicator) {
        const int64_t me = communicator.rank();
        constexpr int64_t kMessages = 40;
        std::vector<std::vector<char>> data;
        std::vector<Send> sends;
        std::vector<Receive> receives;
        for (int64_t i = 0; i < kMessages; ++i) {
          data.emplace_back(static_cast<size_t>(1 + i * i * 97 % 100'000), me == 0 ? static_cast<char>(i + 1) : '\0');
        }
        for (std::vector<char>& one : data) {
          if (me == 0) sends.push_back({1, one.data(), static_cast<int64_t>(one.size())});
          if (me == 1) receives.push_back({0, one.data(), static_cast<int64_t>(one.size())});
        }
        communicator.exchange(sends, receives, 3, {"many", 1});
        for (int64_t i = 0; i < kMessages; ++i) {
          const std::vector<char>& one = data[static_cast<size_t>(i)];
          EXPECT_EQ(one, std::vector<char>(one.size(), static_cast<char>(i + 1)));
        }
      },
      limited());
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(LimitedLinks, TheDeadlineHoldsWhileAMessageIsOnItsWay) {
  const auto begin = Clock::now();
  const auto errors = errors_of_ranks(
      Topology({{"cluster", 2, 1e3, {}}}),
      [](Communicator& communicator) {
        std::vector<char> data(1'000'000);  // 1000 s
        const Send send{1, data.data(), 1'000'000};
        const Receive receive{0, data.data(), 1'000'000};
        if (communicator.rank() == 0) {
          communicator.exchange({&send, 1}, {}, 3, {"too slow", 7});
        } else {
          communicator.exchange({}, {&receive, 1}, 3, {"too slow", 7});
        }
      },
      limited(200));
  EXPECT_LT(seconds_since(begin), 100);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("'too slow' (sequence 7)"));
}

TEST(LimitedLinks, AFailureEndsTheWaitForAMessageOnItsWay) {
  const auto begin = Clock::now();
  const auto errors = errors_of_ranks(
      Topology({{"cluster", 3, 1e3, {}}}),
      [](Communicator& communicator) {
        std::vector<char> data(1'000'000);
        const Send send{1, data.data(), 1'000'000};
        const Receive receive{0, data.data(), 1'000'000};
        if (communicator.rank() == 0) communicator.exchange({&send, 1}, {}, 3, {"too slow", 7});
        if (communicator.rank() == 1) communicator.exchange({}, {&receive, 1}, 3, {"too slow", 7});
        if (communicator.rank() == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          throw std::runtime_error("out of luck");
        }
      },
      limited(500'000));
  EXPECT_LT(seconds_since(begin), 100);
  EXPECT_THAT(errors[0], HasSubstr("out of luck"));
  EXPECT_THAT(errors[1], HasSubstr("out of luck"));
}

}  // namespace
}  // namespace ballast
