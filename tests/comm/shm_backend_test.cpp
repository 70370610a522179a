// Shared memory between thread-ranks: the c10d interface, the protocol's corners, and what is left of a rank that went.
#include "ballast/comm/shm_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "ballast/base/error.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using Backend = c10::intrusive_ptr<ShmBackend>;
constexpr std::chrono::milliseconds kLong(20000);
constexpr int64_t kRing = 16 << 10;

class NoFailure final : public FailureChannel {
 public:
  void announce(const Failure&) noexcept override {}
  std::optional<Failure> known() const override { return std::nullopt; }
  std::optional<Failure> await(std::chrono::milliseconds) override { return std::nullopt; }
  std::vector<int64_t> silent() override { return {}; }
  void on_failure(std::function<void()>) override {}
};

void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<Backend> connect(int ranks) {
  std::vector<int64_t> local;
  std::vector<std::string> names;
  std::vector<ShmOffer> offers;
  for (int rank = 0; rank < ranks; ++rank) {
    local.push_back(rank);
    offers.push_back(offer_memory(static_cast<size_t>(ranks), kRing));
    names.push_back(offers.back().name);
  }
  std::vector<Backend> backends(static_cast<size_t>(ranks));
  const NoFailure watch;
  on_threads(ranks, [&](int rank) {
    auto neighbours = meet_neighbours(std::move(offers[static_cast<size_t>(rank)]), names, watch, local, rank, kLong);
    backends[static_cast<size_t>(rank)] =
        c10::make_intrusive<ShmBackend>(rank, ranks, std::move(neighbours), std::chrono::microseconds(0));
  });
  return backends;
}

std::vector<at::Tensor> numbers(int64_t count, float value) {
  return {at::full({count}, value, at::TensorOptions(at::kFloat))};
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ShmBackend, C10dCollectivesHaveTheRightValues) {
  const auto backends = connect(3);
  EXPECT_EQ(backends[0]->getBackendName(), "shm");
  on_threads(3, [&](int rank) {
    ShmBackend& backend = *backends[static_cast<size_t>(rank)];
    for (const int64_t count : {1, 1000, 100003}) {
      backend.barrier()->wait();
      auto sum = numbers(count, static_cast<float>(rank + 1));
      backend.allreduce(sum)->wait();
      EXPECT_TRUE(sum[0].equal(numbers(count, 6)[0]));
      auto mine = numbers(count, static_cast<float>(rank));
      c10d::BroadcastOptions options;
      options.rootRank = 2;
      auto copy = numbers(count, static_cast<float>(rank));
      backend.broadcast(copy, options)->wait();
      EXPECT_TRUE(copy[0].equal(numbers(count, 2)[0]));
      std::vector<std::vector<at::Tensor>> all{{at::empty({count}), at::empty({count}), at::empty({count})}};
      backend.allgather(all, mine)->wait();
      for (size_t peer = 0; peer < 3; ++peer)
        EXPECT_TRUE(all[0][peer].equal(numbers(count, static_cast<float>(peer))[0]));
    }
  });
}

TEST(ShmBackend, OneThreadWaitsForCrossedTagsAndEmptyMessages) {
  const auto backends = connect(2);
  on_threads(2, [&](int rank) {
    ShmBackend& backend = *backends[static_cast<size_t>(rank)];
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<std::vector<at::Tensor>> in, out;
    for (int k = 0; k < 12; ++k) {
      const int tag = k / 2;  // two messages under each
      in.push_back(numbers(tag * 5000, -1));
      works.push_back(backend.recv(in.back(), 1 - rank, tag));
    }
    for (int k = 11; k >= 0; --k) {  // tags descend, the two messages of one tag are told apart by their value
      const int tag = k / 2;
      out.push_back(numbers(tag * 5000, static_cast<float>(100 * rank + 2 * tag + 1 - k % 2)));
      works.push_back(backend.send(out.back(), 1 - rank, tag));
    }
    for (const auto& work : works) ASSERT_TRUE(work->wait(kLong));
    for (int k = 0; k < 12; ++k) {
      const int64_t count = in[static_cast<size_t>(k)][0].numel();
      EXPECT_TRUE(in[static_cast<size_t>(k)][0].equal(numbers(count, static_cast<float>(100 * (1 - rank) + k))[0]));
    }
  });
}

TEST(ShmBackend, AskingAgainAndAgainMovesMessages) {
  const auto backends = connect(2);
  auto out = numbers(100000, 3), in = numbers(100000, 0);
  const auto sent = backends[0]->send(out, 1, 4), received = backends[1]->recv(in, 0, 4);
  while (!sent->isCompleted() | !received->isCompleted()) {
  }  // asks both
  EXPECT_TRUE(in[0].equal(out[0]));
}

TEST(ShmBackend, AWaitThatIsOverLeavesTheWorkGoingOn) {
  const auto backends = connect(2);
  auto out = numbers(10, 3), in = numbers(10, 0);
  const auto received = backends[1]->recv(in, 0, 4);
  EXPECT_FALSE(received->wait(std::chrono::milliseconds(20)));
  EXPECT_FALSE(received->wait(std::chrono::milliseconds(20)));
  const auto sent = backends[0]->send(out, 1, 4);
  EXPECT_TRUE(sent->wait(kLong));
  EXPECT_TRUE(received->wait(kLong));
  EXPECT_TRUE(in[0].equal(out[0]));
}

TEST(ShmBackend, ManyWaitersOfOneRankAllComeToTheirEnd) {
  const auto backends = connect(2);
  on_threads(16, [&](int thread) {
    const int rank = thread % 2, lane = thread / 2;
    ShmBackend& backend = *backends[static_cast<size_t>(rank)];
    for (int round = 0; round < 200; ++round) {
      auto out = numbers(1 + lane * round * 30, static_cast<float>(lane * 1000 + round)), in = numbers(out[0].numel(), 0);
      const auto received = backend.recv(in, 1 - rank, lane), sent = backend.send(out, 1 - rank, lane);
      ASSERT_TRUE(received->wait(kLong));
      ASSERT_TRUE(sent->wait(kLong));
      ASSERT_TRUE(in[0].equal(out[0]));
    }
  });
}

TEST(ShmBackend, OtherLengthThanAwaitedFailsOnBothEnds) {
  const auto backends = connect(2);
  auto out = numbers(5, 3), in = numbers(6, 0);
  const auto sent = backends[0]->send(out, 1, 4), received = backends[1]->recv(in, 0, 4);
  EXPECT_THAT(error_of([&] { sent->wait(kLong); }), HasSubstr("20 bytes met a receive of 24 bytes"));
  EXPECT_THAT(error_of([&] { received->wait(kLong); }), HasSubstr("20 bytes met a receive of 24 bytes"));
}

TEST(ShmBackend, AbortFromAnotherThreadEndsAWaitAndLeavesTheOthers) {
  const auto backends = connect(2);
  auto a = numbers(5, 0), b = numbers(5, 0), out = numbers(5, 7);
  const auto aborted = backends[1]->recv(a, 0, 1), kept = backends[1]->recv(b, 0, 2);
  std::thread leader([&] { EXPECT_THAT(error_of([&] { aborted->wait(); }), HasSubstr("cancelled")); });
  std::thread follower([&] { EXPECT_TRUE(kept->wait(kLong)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  aborted->abort();
  leader.join();
  backends[0]->send(out, 1, 1)->wait();  // nobody takes it any more; it must not fall into another buffer
  backends[0]->send(out, 1, 2)->wait();
  follower.join();
  EXPECT_TRUE(a[0].equal(numbers(5, 0)[0]));
  EXPECT_TRUE(b[0].equal(out[0]));
}

TEST(ShmBackend, WhatARankSentBeforeItLeftArrivesTheRestFails) {
  auto backends = connect(2);
  auto out = numbers(1000, 7), a = numbers(1000, 0), b = numbers(1000, 0);
  const auto whole = backends[1]->recv(a, 0, 1), never = backends[1]->recv(b, 0, 2);
  EXPECT_TRUE(backends[0]->send(out, 1, 1)->wait(kLong));
  backends[0].reset();
  EXPECT_TRUE(whole->wait(kLong));
  EXPECT_TRUE(a[0].equal(out[0]));
  EXPECT_THAT(error_of([&] { never->wait(kLong); }), HasSubstr("rank 0 has left"));
  EXPECT_THAT(error_of([&] { backends[1]->recv(b, 0, 3); }), HasSubstr("rank 0 has left"));
  EXPECT_THAT(error_of([&] { backends[1]->send(b, 0, 3); }), HasSubstr("rank 0 has left"));
}

TEST(ShmBackend, RefusesRanksAndTensorsThatItCannotReach) {
  const auto backends = connect(2);
  auto one = numbers(4, 1);
  EXPECT_THAT(error_of([&] { backends[0]->send(one, 0, 1); }), HasSubstr("rank 0 is no other rank of this host"));
  EXPECT_THAT(error_of([&] { backends[0]->recv(one, 2, 1); }), HasSubstr("rank 2 is no other rank of this host"));
  std::vector<at::Tensor> strided{at::zeros({4, 4}).t().slice(0, 0, 2)};
  EXPECT_THAT(error_of([&] { backends[0]->send(strided, 1, 1); }), HasSubstr("shm: one contiguous CPU tensor"));
}

TEST(ShmMeeting, AStrangerIsNotLetInAndAMissingRankIsNamed) {
  const std::vector<int64_t> local{0, 1};
  const NoFailure watch;
  ShmOffer offer = offer_memory(2, kRing);
  const std::vector<std::string> names{offer.name, "ballast-nobody"};
  EXPECT_THAT(
      error_of([&] { meet_neighbours(std::move(offer), names, watch, local, 0, std::chrono::milliseconds(200)); }),
      HasSubstr("rank 1 is lost to rank 0 while meeting"));
  EXPECT_THAT(error_of([&] { meet_neighbours(offer_memory(2, kRing), names, watch, local, 1, kLong); }),
              HasSubstr("rank 0 is lost to rank 1 while meeting"));
}

TEST(ShmSegment, ASystemThatRefusesIsSaidWithACure) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string error = error_of([] { ShmSegment(1, kRing); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(error, HasSubstr("cannot create memory shared between processes"));
  EXPECT_THAT(error, HasSubstr("comm.backend=gloo"));
}

}  // namespace
}  // namespace ballast
