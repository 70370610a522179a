#pragma once
// What every layout must keep, whatever policy made it. For tests.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ballast/layout/layout.h"

namespace ballast {

inline std::vector<SampleRef> samples_of(const std::vector<int64_t>& lengths) {
  std::vector<SampleRef> samples;
  for (size_t i = 0; i < lengths.size(); ++i) samples.push_back({i + 100, lengths[i]});
  return samples;
}

// (sample, position) of every token slot of pieces; padding is (~0, -1).
inline std::vector<std::pair<uint64_t, int64_t>> token_slots(std::span<const Piece> pieces) {
  std::vector<std::pair<uint64_t, int64_t>> slots;
  for (const Piece& piece : pieces) {
    for (int64_t i = 0; i < piece.length; ++i) slots.emplace_back(piece.sample, piece.begin + i);
    for (int64_t i = 0; i < piece.padding; ++i) slots.emplace_back(~uint64_t{0}, int64_t{-1});
  }
  return slots;
}

inline void expect_every_token_once(const std::vector<std::pair<uint64_t, int64_t>>& tokens, std::span<const SampleRef> selection, const char* what) {
  std::map<std::pair<uint64_t, int64_t>, int64_t> seen;
  for (const auto& token : tokens) {
    if (token.second >= 0) ++seen[token];
  }
  size_t expected = 0;
  for (const SampleRef& sample : selection) {
    expected += static_cast<size_t>(sample.length);
    for (int64_t i = 0; i < sample.length; ++i) {
      const auto found = seen.find({sample.sample, i});
      ASSERT_TRUE(found != seen.end() && found->second == 1) << what << ": token " << i << " of sample " << sample.sample;
    }
  }
  EXPECT_EQ(seen.size(), expected) << what;
}

// Every token once among the pieces and once in attention, in the same micro-batch; every rank the same number of micro-batches; members, chunks
// and slots of cut sequences; whole sequences whole; runs that pair up and carry the same tokens at both ends.
inline void expect_legal(const Layout& layout, std::span<const SampleRef> selection, int64_t ranks) {
  ASSERT_EQ(static_cast<int64_t>(layout.ranks.size()), ranks);
  std::map<uint64_t, int64_t> length;
  for (const SampleRef& sample : selection) length[sample.sample] = sample.length;
  std::vector<std::pair<uint64_t, int64_t>> linear, attention;
  for (const auto& rank : layout.ranks) ASSERT_EQ(static_cast<int64_t>(rank.size()), layout.micro_batches());
  for (size_t m = 0; m < static_cast<size_t>(layout.micro_batches()); ++m) {
    std::map<const CutSequence*, std::map<int64_t, int64_t>> members;   // cut -> member -> rank
    for (int64_t r = 0; r < ranks; ++r) {
      const MicroBatchLayout& batch = layout.ranks[static_cast<size_t>(r)][m];
      const auto here = token_slots(batch.pieces), attended = token_slots(batch.attention_pieces());
      linear.insert(linear.end(), here.begin(), here.end());
      attention.insert(attention.end(), attended.begin(), attended.end());
      int64_t slot = 0, order = -1;
      for (const CutPart& part : batch.cuts) {
        if (part.member < 0) continue;   // only passes on
        ASSERT_GT(part.cut->order, order) << "cut sequences out of order";
        order = part.cut->order;
        EXPECT_EQ(part.slot, slot);
        ASSERT_EQ(part.cut->ranks[static_cast<size_t>(part.member)], r);
        EXPECT_TRUE(members[part.cut.get()].emplace(part.member, r).second);
        EXPECT_EQ(part.cut->length, length[part.cut->sample]);
        EXPECT_EQ(part.cut->members() % (part.cut->team * part.cut->team), 0);
        for (const Piece& chunk : part.cut->chunks(part.member)) {
          for (int64_t i = 0; i < chunk.length; ++i, ++slot) {
            ASSERT_LT(slot, static_cast<int64_t>(attended.size()));
            ASSERT_EQ(attended[static_cast<size_t>(slot)], std::make_pair(chunk.sample, chunk.begin + i));
          }
        }
      }
      int64_t at = 0;
      for (const Piece& piece : batch.attention_pieces()) {
        if (at >= slot) {
          EXPECT_EQ(piece.begin, 0);
          EXPECT_EQ(piece.length, length[piece.sample]) << "a sequence that no ring holds is not whole";
        }
        at += piece.length + piece.padding;
      }
      if (!batch.remapped()) continue;
      const auto count = [](const std::vector<TokenRun>& runs) {
        int64_t slots = 0;
        for (const TokenRun& run : runs) {
          EXPECT_EQ(run.slot, slots);
          EXPECT_GT(run.count, 0);
          slots += run.count;
        }
        return slots;
      };
      EXPECT_EQ(count(batch.leave), batch.slots());
      EXPECT_EQ(count(batch.arrive), batch.attention_slots());
      for (int64_t other = 0; other < ranks; ++other) {
        const MicroBatchLayout& there = layout.ranks[static_cast<size_t>(other)][m];
        std::vector<TokenRun> out, in;
        for (const TokenRun& run : batch.leave) if (run.rank == other) out.push_back(run);
        for (const TokenRun& run : there.arrive) if (run.rank == r) in.push_back(run);
        ASSERT_EQ(out.size(), in.size());
        const auto landed = token_slots(there.attended);
        for (size_t k = 0; k < out.size(); ++k) {
          ASSERT_EQ(out[k].count, in[k].count);
          for (int64_t i = 0; i < out[k].count; ++i) ASSERT_EQ(here[static_cast<size_t>(out[k].slot + i)], landed[static_cast<size_t>(in[k].slot + i)]);
        }
      }
    }
    for (const auto& [cut, found] : members) EXPECT_EQ(static_cast<int64_t>(found.size()), cut->members()) << "sample " << cut->sample;
  }
  expect_every_token_once(linear, selection, "pieces");
  expect_every_token_once(attention, selection, "attention");
}

}  // namespace ballast
