// The contract of Communicator on the back ends that need no process: single and in-process.
#include "ballast/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "ballast/comm/in_process_backend.h"
#include "tests/comm/thread_ranks.h"

namespace ballast {
namespace {

using testing::HasSubstr;

TEST(Single, CopiesToItselfAndAgreesAlone) {
  const auto communicator = make_single();
  int64_t from[2] = {3, 4}, to[2] = {0, 0};
  const Send sends[] = {{0, &from[0], 8}, {0, &from[1], 8}, {0, nullptr, 0}};
  const Receive receives[] = {{0, &to[1], 8}, {0, nullptr, 0}, {0, &to[0], 8}};
  communicator->exchange(sends, receives, 1, {"copy", 0});
  EXPECT_EQ(to[0], 4);
  EXPECT_EQ(to[1], 3);
  EXPECT_EQ(communicator->all_gather_text("x", "names"), std::vector<std::string>{"x"});
  EXPECT_EQ(communicator->bytes_sent(), std::vector<int64_t>{0});
  EXPECT_EQ(communicator->name(), "single");
}

TEST(Single, RefusesAMessageToItselfThatNobodyTakes) {
  const auto communicator = make_single();
  int64_t value = 1;
  const Send send{0, &value, 8};
  EXPECT_THROW(communicator->exchange({&send, 1}, {}, 1, {"copy", 0}), Error);
  const Receive receive{0, &value, 8};
  EXPECT_THROW(communicator->exchange({}, {&receive, 1}, 1, {"copy", 0}), Error);
  EXPECT_THROW(communicator->exchange({}, {}, kTagLimit, {"copy", 0}), Error);
}

TEST(InProcess, MessagesOfOnePairArriveInOrderInPiecesAndBothWaysAtOnce) {
  CommunicatorOptions options{std::chrono::milliseconds(20000)};
  options.longest_message = 1000;  // most travel in pieces
  for (const int64_t bytes : {1, 999, 1000, 1001, 4000, 123457, 1000000}) {
    const auto errors = errors_of_ranks(
        Topology::flat(2),
        [&](Communicator& communicator) {
          const int64_t me = communicator.rank(), other = 1 - me;
          const auto pattern = [&](int64_t rank, int64_t message) {
            std::vector<char> data(static_cast<size_t>(bytes));
            for (size_t i = 0; i < data.size(); ++i)
              data[i] = static_cast<char>(i * 7 + i / 251 + static_cast<size_t>(rank * 31 + message * 57));
            return data;
          };
          std::vector<char> a = pattern(me, 0), b = pattern(me, 1), c(a.size()), d(a.size());
          const Send sends[] = {{other, a.data(), bytes}, {other, b.data(), bytes}};
          const Receive receives[] = {{other, c.data(), bytes}, {other, d.data(), bytes}};
          communicator.exchange(sends, receives, 9, {"swap", 5});
          EXPECT_EQ(c, pattern(other, 0));
          EXPECT_EQ(d, pattern(other, 1));
          EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{2 * bytes});
        },
        options);
    for (const std::string& error : errors) EXPECT_EQ(error, "") << bytes;
  }
}

TEST(InProcess, LanesExchangeAtOnceWithTheirOwnTags) {
  const int64_t ranks = 3, lanes = 4, rounds = 200;
  const auto errors = errors_of_ranks(Topology::flat(ranks), [&](Communicator& communicator) {
    const int64_t me = communicator.rank();
    std::vector<std::thread> threads;
    std::atomic<int64_t> wrong{0};
    for (int64_t lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&, lane] {
        for (int64_t round = 0; round < rounds; ++round) {
          const int64_t mine[2] = {me * 1000000 + lane * 1000 + round, lane};
          int64_t got[2] = {-1, -1};
          const int64_t next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
          const Send send{next, mine, 16};
          const Receive receive{previous, got, 16};
          communicator.exchange({&send, 1}, {&receive, 1}, static_cast<uint64_t>(lane),
                                {"ring", static_cast<uint64_t>(round)});
          if (got[0] != previous * 1000000 + lane * 1000 + round || got[1] != lane) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{lanes * rounds * 16});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(InProcess, TextsOfAnyLengthGatherByRank) {
  for (const int64_t ranks : {1, 2, 5, 8}) {
    const auto errors = errors_of_ranks(Topology::flat(ranks), [&](Communicator& communicator) {
      for (int round = 0; round < 20; ++round) {
        const auto text_of = [&](int64_t rank) {
          return std::string(static_cast<size_t>(rank * 100000 % 70001), static_cast<char>('a' + (rank + round) % 26));
        };
        const auto texts = communicator.all_gather_text(text_of(communicator.rank()), "texts");
        ASSERT_EQ(texts.size(), static_cast<size_t>(ranks));
        for (int64_t rank = 0; rank < ranks; ++rank) ASSERT_EQ(texts[static_cast<size_t>(rank)], text_of(rank));
        communicator.barrier("round");
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(InProcess, AnAbortEndsEveryWaitingRankWithItsReason) {
  const auto errors = errors_of_ranks(Topology::flat(4), [](Communicator& communicator) {
    if (communicator.rank() == 2) throw Error(ErrorKind::Numerical, "loss is not finite");
    int64_t value = 0;
    const int64_t from = communicator.rank() == 3 ? 0 : 3;  // waits for one that is itself only waiting
    const Receive receive{from, &value, 8};
    communicator.exchange({}, {&receive, 1}, 4, {"reduce block.3", 117});
  });
  for (const size_t rank : {0, 1, 3}) {
    EXPECT_THAT(errors[rank], HasSubstr("peer lost: rank 2 is lost to rank " + std::to_string(rank) +
                                        " in 'reduce block.3' (sequence 117)"));
    EXPECT_THAT(errors[rank], HasSubstr("loss is not finite"));
  }
}

TEST(InProcess, TheDeadlineNamesThePeerThePurposeAndTheSequence) {
  const auto errors = errors_of_ranks(Topology::flat(3),
                                      [](Communicator& communicator) {
                                        if (communicator.rank() == 1) return;  // never comes
                                        std::vector<char> large(1 << 20);      // a send that waits for its receiver
                                        int64_t value = 0;
                                        const Send send{1, large.data(), 1 << 20};
                                        const Receive receive{1, &value, 8};
                                        if (communicator.rank() == 0)
                                          communicator.exchange({&send, 1}, {}, 4, {"gather embedding", 12});
                                        if (communicator.rank() == 2)
                                          communicator.exchange({}, {&receive, 1}, 5, {"gather embedding", 12});
                                      },
                                      {std::chrono::milliseconds(200)});
  EXPECT_EQ(errors[1], "");
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(errors[rank],
                HasSubstr("rank 1 is lost to rank " + std::to_string(rank) + " in 'gather embedding' (sequence 12)"));
    EXPECT_THAT(errors[rank], HasSubstr("no answer within 0.2 s"));
  }
}

TEST(InProcess, ARankThatLeavesIsNamedButWhatItSentArrives) {
  auto communicators = make_in_process(Topology::flat(2), {std::chrono::milliseconds(20000)});
  int64_t value = 41, got = 0;
  const Send send{0, &value, 8};
  communicators[1]->exchange({&send, 1}, {}, 1, {"last words", 0});
  communicators[1].reset();
  const Receive receive{1, &got, 8};
  communicators[0]->exchange({}, {&receive, 1}, 1, {"last words", 0});
  EXPECT_EQ(got, 41);
  try {
    communicators[0]->exchange({}, {&receive, 1}, 2, {"more", 8});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 is lost to rank 0 in 'more' (sequence 8)"));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has left"));
  }
}

TEST(InProcess, EndsThatDisagreeAboutTheLengthAreAnError) {
  const auto errors = errors_of_ranks(Topology::flat(2), [](Communicator& communicator) {
    char data[16] = {};
    const Send send{1, data, 16};
    const Receive receive{0, data, 8};
    if (communicator.rank() == 0) communicator.exchange({&send, 1}, {}, 1, {"odd", 0});
    if (communicator.rank() == 1) communicator.exchange({}, {&receive, 1}, 1, {"odd", 0});
  });
  EXPECT_THAT(errors[1], HasSubstr("a message of 16 bytes met a receive of 8 bytes"));
}

TEST(InProcess, ItsBackEndHasTheCollectivesOfC10d) {
  const int ranks = 3;
  const auto hub = std::make_shared<InProcessHub>(ranks);
  std::vector<std::thread> threads;
  std::vector<std::string> errors(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = c10::make_intrusive<InProcessBackend>(hub, rank, ranks);
      backend->barrier()->wait();
      std::vector<at::Tensor> sum{at::full({4}, rank + 1.0)};
      backend->allreduce(sum)->wait();
      if (!sum[0].equal(at::full({4}, 6.0))) errors[static_cast<size_t>(rank)] += "allreduce ";
      std::vector<at::Tensor> word{at::full({2}, rank, at::kLong)};
      c10d::BroadcastOptions root;
      root.rootRank = 2;
      backend->broadcast(word, root)->wait();
      if (!word[0].equal(at::full({2}, 2, at::kLong))) errors[static_cast<size_t>(rank)] += "broadcast ";
      std::vector<at::Tensor> mine{at::full({1}, rank, at::kInt)};
      std::vector<std::vector<at::Tensor>> all{
          {at::zeros({1}, at::kInt), at::zeros({1}, at::kInt), at::zeros({1}, at::kInt)}};
      backend->allgather(all, mine)->wait();
      for (int peer = 0; peer < ranks; ++peer) {
        if (all[0][static_cast<size_t>(peer)].item<int>() != peer) errors[static_cast<size_t>(rank)] += "allgather ";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace ballast
