// Every collective over ranks x sizes x codecs by value, and the bytes that each level counts, over thread-ranks.
#include "ballast/comm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <random>

#include "ballast/codec/transcode.h"
#include "tests/comm/thread_ranks.h"

namespace ballast {
namespace {

// Element i of what a rank contributes: all exponents between 2^-8 and 2^8, both signs, so that the order of sums
// shows.
std::vector<float> contribution(int64_t rank, int64_t elements) {
  std::mt19937 random(static_cast<unsigned>(1000 + rank));
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values)
    value = std::ldexp(static_cast<float>(random() % 65536) / 65536.f - 0.5f, static_cast<int>(random() % 17) - 8);
  return values;
}

// What arrives of `values` when each `part` of them is sent alone.
std::vector<float> through(const Codec& codec, const std::vector<float>& values, int64_t part) {
  std::vector<float> back(values.size());
  std::vector<char> wire(static_cast<size_t>(codec.encoded_bytes(part)));
  for (size_t begin = 0; begin < values.size(); begin += static_cast<size_t>(part)) {
    codec.encode(values.data() + begin, part, wire.data());
    codec.decode(wire.data(), part, back.data() + begin);
  }
  return back;
}

std::vector<int64_t> sizes_for(int64_t ranks) { return {0, 1, ranks - 1, ranks, ranks + 1, 4099, 70000}; }

struct Case {
  int64_t ranks;
  const char* codec;
};
class CollectivesTest : public testing::TestWithParam<Case> {};

TEST_P(CollectivesTest, ReduceScatterSumsInMemberOrderAndCountsItsBytes) {
  const auto [ranks, name] = GetParam();
  const Codec& codec = codec_for(parse_codec(name));
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  for (const int64_t part : sizes_for(ranks)) {
    std::vector<std::vector<float>> sources;
    std::vector<float> sums;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      sources.push_back(contribution(rank, ranks * part));
      const std::vector<float> arrived = through(codec, sources.back(), part);
      if (rank == 0) {
        sums = arrived;
      } else {
        std::transform(sums.begin(), sums.end(), arrived.begin(), sums.begin(), std::plus<>());
      }
    }
    const auto expected = [&](int64_t index) { return sums[static_cast<size_t>(index)]; };
    const auto errors = errors_of_ranks(Topology::flat(ranks), [&](Communicator& communicator) {
      const int64_t rank = communicator.rank();
      std::vector<char> wire(static_cast<size_t>(reduce_wire_bytes(codec, ranks, part)));
      std::vector<float> source = sources[static_cast<size_t>(rank)], apart(static_cast<size_t>(part), 0.f),
                         added(static_cast<size_t>(part), 3.f);
      const Hop hop{members, rank, 7, {"reduce", 1}};
      reduce_scatter(communicator, hop, codec, source.data(), part, apart.data(), false, wire.data());
      reduce_scatter(communicator, hop, codec, source.data(), part, added.data(), true, wire.data());
      EXPECT_EQ(source, sources[static_cast<size_t>(rank)]);
      reduce_scatter(communicator, hop, codec, source.data(), part, source.data() + rank * part, false,
                     wire.data());  // in place
      for (int64_t i = 0; i < part; ++i) {
        const float sum = expected(rank * part + i);
        ASSERT_EQ(std::bit_cast<uint32_t>(apart[static_cast<size_t>(i)]), std::bit_cast<uint32_t>(sum))
            << "element " << i;
        ASSERT_EQ(added[static_cast<size_t>(i)], 3.f + sum);
        ASSERT_EQ(source[static_cast<size_t>(rank * part + i)], sum);
      }
      for (int64_t i = 0; i < ranks * part; ++i) {  // only the own part of the source changed
        if (i / part != rank) {
          ASSERT_EQ(source[static_cast<size_t>(i)], sources[static_cast<size_t>(rank)][static_cast<size_t>(i)]);
        }
      }
      EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{3 * (ranks - 1) * codec.encoded_bytes(part)});
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "") << ranks << " ranks, part " << part;
  }
}

TEST_P(CollectivesTest, GatherFillsEveryPart) {
  const auto [ranks, name] = GetParam();
  const Codec& codec = codec_for(parse_codec(name));
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  for (const int64_t part : sizes_for(ranks)) {
    const int64_t bytes = codec.encoded_bytes(part);
    std::vector<char> expected(static_cast<size_t>(ranks * bytes));
    for (int64_t rank = 0; rank < ranks; ++rank)
      codec.encode(contribution(rank, part).data(), part, expected.data() + rank * bytes);
    const auto errors = errors_of_ranks(Topology::flat(ranks), [&](Communicator& communicator) {
      const int64_t rank = communicator.rank();
      std::vector<char> buffer(expected.size(), 0x55);
      codec.encode(contribution(rank, part).data(), part, buffer.data() + rank * bytes);
      gather(communicator, {members, rank, 3, {"gather", 2}}, buffer.data(), bytes);
      EXPECT_EQ(buffer, expected);
      EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{(ranks - 1) * bytes});
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "") << ranks << " ranks, part " << part;
  }
}

// Parts of any sizes, some of them empty: every byte comes to where its bounds say, and only those of other members are sent.
TEST(Collectives, PartsOfUnequalSizes) {
  for (const int64_t ranks : {1, 2, 3, 5}) {
    std::vector<int64_t> members(static_cast<size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    for (const int64_t empty : {int64_t{-1}, int64_t{0}, ranks - 1}) {
      std::vector<int64_t> bounds{0};
      for (int64_t j = 0; j < ranks; ++j) bounds.push_back(bounds.back() + (j == empty ? 0 : 3000 * (j + 1) + 7));
      const auto size_of_part = [&](int64_t j) { return bounds[static_cast<size_t>(j) + 1] - bounds[static_cast<size_t>(j)]; };
      const auto byte = [](int64_t from, int64_t at) { return static_cast<char>(from * 31 + at * 7 + 1); };
      const auto errors = errors_of_ranks(Topology::flat(ranks), [&](Communicator& communicator) {
        const int64_t rank = communicator.rank(), own = size_of_part(rank);
        std::vector<char> buffer(static_cast<size_t>(bounds.back()), 0);
        for (int64_t i = bounds[static_cast<size_t>(rank)]; i < bounds[static_cast<size_t>(rank) + 1]; ++i) buffer[static_cast<size_t>(i)] = byte(rank, i);
        gather(communicator, {members, rank, 3, {"gather", 1}}, buffer.data(), bounds);
        for (int64_t j = 0; j < ranks; ++j) {
          for (int64_t i = bounds[static_cast<size_t>(j)]; i < bounds[static_cast<size_t>(j) + 1]; ++i) ASSERT_EQ(buffer[static_cast<size_t>(i)], byte(j, i)) << i;
        }
        EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{(ranks - 1) * own});
        for (int64_t i = 0; i < bounds.back(); ++i) buffer[static_cast<size_t>(i)] = byte(rank, i);
        std::vector<char> arrived(static_cast<size_t>((ranks - 1) * own));
        swap(communicator, {members, rank, 4, {"swap", 2}}, buffer.data(), bounds, arrived.data());
        for (int64_t j = 0; j < ranks; ++j) {
          for (int64_t i = 0; j != rank && i < own; ++i) {
            ASSERT_EQ(arrived[static_cast<size_t>(swap_slot(j, rank, ranks) * own + i)], byte(j, bounds[static_cast<size_t>(rank)] + i)) << "from " << j;
          }
        }
        EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{(ranks - 1) * own + bounds.back() - own});
      });
      for (const std::string& error : errors) ASSERT_EQ(error, "") << ranks << " ranks, part " << empty << " empty";
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int64_t ranks : {1, 2, 3, 4, 5, 8}) {
    for (const char* codec : {"fp32", "bf16", "fp16", "int8", "int4"}) cases.push_back({ranks, codec});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Grid, CollectivesTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return std::to_string(info.param.ranks) + "_" + info.param.codec; });

TEST(Collectives, BlockLongerThanTheCacheBlockStillSums) {
  // A codec whose blocks are longer than what is summed at a time.
  class Wide final : public Codec {
   public:
    const CodecSpec& spec() const override { return spec_; }
    bool encode(const float* source, int64_t elements, void* encoded, Draw draw) const override {
      return bf16_.encode(source, elements, encoded, draw);
    }
    void decode(const void* encoded, int64_t elements, float* result) const override {
      bf16_.decode(encoded, elements, result);
    }
    void decode_add(const void* encoded, int64_t elements, float* result) const override {
      bf16_.decode_add(encoded, elements, result);
    }

   private:
    CodecSpec spec_{"bf16", 5000};
    const Codec& bf16_ = codec_for(parse_codec("bf16"));
  };
  const Wide codec;
  const std::vector<int64_t> members{0, 1};
  const int64_t part = 12345;
  const auto errors = errors_of_ranks(Topology::flat(2), [&](Communicator& communicator) {
    std::vector<float> source(2 * part), result(part);
    for (int64_t i = 0; i < 2 * part; ++i)
      source[static_cast<size_t>(i)] = static_cast<float>((i + communicator.rank()) % 64);
    std::vector<char> wire(static_cast<size_t>(reduce_wire_bytes(codec, 2, part)));
    reduce_scatter(communicator, {members, communicator.rank(), 1, {"reduce", 0}}, codec, source.data(), part,
                   result.data(), false, wire.data());
    for (int64_t i = 0; i < part; ++i) {
      const int64_t at = communicator.rank() * part + i;
      ASSERT_EQ(result[static_cast<size_t>(i)], static_cast<float>(at % 64 + (at + 1) % 64));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// A hierarchical all-reduce as hops: reduce inner hop first, gather outer hop first. Values exact (small integers),
// bytes by formula per level.
TEST(Collectives, HopsOverEveryLevelReduceAndGatherTheWholeAndCountPerLevel) {
  const std::vector<std::vector<int64_t>> shapes{{2, 2}, {3, 2}, {2, 2, 2}, {4}, {1, 3}, {2, 3, 1}};
  for (const auto& shape : shapes) {
    std::vector<Level> levels;
    for (size_t i = 0; i < shape.size(); ++i) levels.push_back({"level" + std::to_string(i), shape[i], {}, {}});
    const Topology topology(levels);
    const int64_t ranks = topology.ranks(), part = 37;
    std::vector<int64_t> formula(levels.size(), 0);
    int64_t held = ranks * part;  // elements held before the hop
    for (size_t i = 0; i < shape.size(); ++i) {
      held /= shape[i];
      formula[i] = (shape[i] - 1) * held * 4 * 2;  // once down, once up
    }
    const auto errors = errors_of_ranks(topology, [&](Communicator& communicator) {
      const int64_t rank = communicator.rank();
      std::vector<float> buffer(static_cast<size_t>(ranks * part));
      for (size_t i = 0; i < buffer.size(); ++i)
        buffer[i] = static_cast<float>(static_cast<int64_t>(i % 101) * (rank + 1));
      const Codec& codec = codec_for(parse_codec("fp32"));
      std::vector<char> wire(static_cast<size_t>(reduce_wire_bytes(codec, ranks, ranks * part)));
      float* own = buffer.data();
      int64_t elements = ranks * part;
      for (int level = 0; level < topology.level_count(); ++level) {
        const auto members = topology.hop_members(rank, level);
        const int64_t index = topology.coordinate(rank, level);
        elements /= static_cast<int64_t>(members.size());
        reduce_scatter(communicator, {members, index, static_cast<uint64_t>(level), {"reduce", 0}}, codec, own,
                       elements, own + index * elements, false, wire.data());
        own += index * elements;
      }
      EXPECT_EQ(own - buffer.data(), topology.shard_index(rank, topology.outermost()) * part);
      for (int level = topology.outermost(); level >= 0; --level) {
        const auto members = topology.hop_members(rank, level);
        const int64_t index = topology.coordinate(rank, level);
        own -= index * elements;
        gather(communicator, {members, index, static_cast<uint64_t>(10 + level), {"gather", 0}}, own, elements * 4);
        elements *= static_cast<int64_t>(members.size());
      }
      for (size_t i = 0; i < buffer.size(); ++i)
        ASSERT_EQ(buffer[i], static_cast<float>(static_cast<int64_t>(i % 101) * ranks * (ranks + 1) / 2));
      EXPECT_EQ(communicator.bytes_sent(), formula) << topology.text();
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "") << topology.text();
  }
}

// A sum over the ranks of a node and then over the nodes, as the engine runs it: encode, swap, sum and encode, swap, sum. Bit for bit it is one
// quantisation of what each rank has and one of what each node has, for odd numbers of nodes, a node of one rank and parts of a single block.
TEST(Collectives, TwoHopSumsAreTwoQuantisationsWhateverTheRanks) {
  struct Wires {
    CodecSpec inner, outer;
  };
  const Wires wires[] = {{{.name = "int4", .block = 8}, {.name = "int4", .block = 8}},
                         {{.name = "int4", .block = 40}, {.name = "int8", .block = 40}},
                         {{.name = "int8", .block = 256}, {.name = "int8", .block = 256}},
                         {{.name = "int8", .block = 8, .symmetric = false}, {.name = "int4", .block = 24, .symmetric = false}}};
  for (const auto& [inner_spec, outer_spec] : wires) {
    for (const auto& [inner, nodes] : std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {2, 2}, {2, 3}, {3, 3}, {4, 2}, {2, 5}}) {
      for (const int64_t blocks : {1, 3}) {
        const Codec &first = codec_for(inner_spec), &second = codec_for(outer_spec);
        const int64_t part = blocks * std::lcm(inner_spec.block, outer_spec.block), of_node = nodes * part, whole = inner * of_node;
        const Topology topology({{"node", inner, {}, {}}, {"cluster", nodes, {}, {}}});
        std::vector<float> want;   // of all elements
        for (int64_t node = 0; node < nodes; ++node) {
          std::vector<float> sum;
          for (int64_t rank = node * inner; rank < (node + 1) * inner; ++rank) {
            const std::vector<float> arrived = through(first, contribution(rank, whole), whole);
            if (sum.empty()) sum.assign(arrived.size(), 0.0f);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] = rank == node * inner ? arrived[i] : sum[i] + arrived[i];
          }
          const std::vector<float> arrived = through(second, sum, whole);
          if (node == 0) want.assign(arrived.size(), 0.0f);
          for (size_t i = 0; i < want.size(); ++i) want[i] = node == 0 ? arrived[i] : want[i] + arrived[i];
        }
        const auto errors = errors_of_ranks(topology, [&](Communicator& communicator) {
          const int64_t rank = communicator.rank(), local = topology.coordinate(rank, 0), node = topology.coordinate(rank, 1);
          // All members' parts as they are sent, and the sum of this rank's into `target`.
          const auto hop = [&](const Codec& codec, int level, int64_t elements, const std::vector<char>& mine, const SumTarget& target) {
            const auto members = topology.hop_members(rank, level);
            const auto count = static_cast<int64_t>(members.size());
            const int64_t index = topology.coordinate(rank, level), bytes = codec.encoded_bytes(elements);
            std::vector<char> arrived(static_cast<size_t>((count - 1) * bytes));
            swap(communicator, {members, index, static_cast<uint64_t>(level), {"reduce", 0}}, mine.data(), bytes, arrived.data());
            std::vector<const void*> parts;
            for (int64_t member = 0; member < count; ++member) {
              parts.push_back(member == index ? mine.data() + index * bytes : arrived.data() + swap_slot(member, index, count) * bytes);
            }
            EXPECT_TRUE(sum_parts(codec, parts, elements, target));
          };
          std::vector<char> mine(static_cast<size_t>(first.encoded_bytes(whole))), summed(static_cast<size_t>(second.encoded_bytes(of_node)));
          std::vector<float> result(static_cast<size_t>(part));
          EXPECT_TRUE(first.encode(contribution(rank, whole).data(), whole, mine.data()));
          SumTarget encoded, values;
          encoded.codec = &second;
          encoded.encoded = summed.data();
          values.values = result.data();
          hop(first, 0, of_node, mine, encoded);
          hop(second, 1, part, summed, values);
          const int64_t begin = local * of_node + node * part;
          EXPECT_EQ(result, std::vector<float>(want.begin() + begin, want.begin() + begin + part));
          EXPECT_EQ(communicator.bytes_sent(), (std::vector<int64_t>{(inner - 1) * first.encoded_bytes(of_node), (nodes - 1) * second.encoded_bytes(part)}));
        });
        for (const std::string& error : errors) ASSERT_EQ(error, "") << inner_spec.text() << ", " << outer_spec.text() << ", " << topology.text() << ", " << blocks << " blocks";
      }
    }
  }
}

TEST(Collectives, AllSumIsExactAndNotCounted) {
  for (const int64_t ranks : {1, 2, 3, 8}) {
    const auto errors = errors_of_ranks(Topology::flat(ranks), [&](Communicator& communicator) {
      const int64_t rank = communicator.rank();
      for (int round = 0; round < 50; ++round) {
        const std::vector<int64_t> mine{rank + 1, (int64_t{1} << 60) - rank, -rank, round};
        const auto sum = all_sum(communicator, mine, "tokens");
        const int64_t triangle = ranks * (ranks - 1) / 2;
        const int64_t large =
            static_cast<int64_t>((static_cast<uint64_t>(ranks) << 60) - static_cast<uint64_t>(triangle));
        ASSERT_EQ(sum, (std::vector<int64_t>{triangle + ranks, large, -triangle, round * ranks}));
      }
      EXPECT_TRUE(all_sum(communicator, {}, "nothing").empty());
      EXPECT_EQ(communicator.bytes_sent(), std::vector<int64_t>{0});
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

}  // namespace
}  // namespace ballast
