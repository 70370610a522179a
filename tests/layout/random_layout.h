#pragma once
// Layouts that no policy would make but every step must train: random cuts over random ranks in random order, random sharing and teams, tokens that
// move at random between attention and the rest. For tests.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "ballast/layout/parts.h"
#include "ballast/layout/remap.h"

namespace ballast {

// What goes from slots of a rank's attention to a rank's pieces.
struct RandomRun {
  int64_t from, slot, count, to;
};

// Tokens of micro-batch `index` to random ranks in random runs, in random order; `limit` slots on a rank.
inline void remap_at_random(Layout& layout, int64_t index, int64_t limit, std::mt19937_64& random) {
  const auto ranks = static_cast<int64_t>(layout.ranks.size());
  const auto batch_of = [&](int64_t rank) -> MicroBatchLayout& { return layout.ranks[static_cast<size_t>(rank)][static_cast<size_t>(index)]; };
  std::vector<int64_t> room(layout.ranks.size(), limit);
  std::vector<RandomRun> runs;
  for (int64_t from = 0; from < ranks; ++from) {
    const int64_t slots = batch_of(from).slots();
    for (int64_t slot = 0; slot < slots;) {
      int64_t to = static_cast<int64_t>(random()) & 0x7fffffff;
      for (to %= ranks; room[static_cast<size_t>(to)] == 0; to = (to + 1) % ranks) {}
      const int64_t most = std::min({slots - slot, room[static_cast<size_t>(to)], 1 + slots / 3});
      const int64_t count = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
      runs.push_back({from, slot, count, to});
      room[static_cast<size_t>(to)] -= count;
      slot += count;
    }
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    MicroBatchLayout& batch = batch_of(rank);
    batch.attended = std::move(batch.pieces);
    batch.pieces.clear();
    for (const RandomRun& run : runs) {
      if (run.from == rank) batch.arrive.push_back({run.to, run.slot, run.count});
    }
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    MicroBatchLayout& batch = batch_of(rank);
    std::vector<RandomRun> coming;
    for (const RandomRun& run : runs) {
      if (run.to == rank) coming.push_back(run);
    }
    // Senders in random order, the runs of one sender in the order of their slots.
    std::vector<int64_t> turns;
    for (const RandomRun& run : coming) turns.push_back(run.from);
    std::shuffle(turns.begin(), turns.end(), random);
    int64_t slot = 0;
    for (int64_t from : turns) {
      const auto run = std::find_if(coming.begin(), coming.end(), [&](const RandomRun& one) { return one.from == from; });
      batch.leave.push_back({from, slot, run->count});
      for (const Piece& piece : slice(batch_of(from).attended, run->slot, run->count)) batch.pieces.push_back(piece);
      slot += run->count;
      coming.erase(run);
    }
  }
}

// Every sample whole on a random rank or cut over 1 to all ranks, in as many micro-batches as the draws need; micro_tokens 0: no limit. Sharing by
// heads only where limits.heads and kv_heads divide. The options of the limits are not looked at. A sample must fit into micro_tokens on every rank.
inline Layout random_layout(std::span<const SampleRef> selection, const LayoutLimits& limits, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
  const Topology topology = topology_of(limits);
  const int64_t ranks = limits.ranks, limit = limits.micro_tokens > 0 ? limits.micro_tokens : int64_t{1} << 40;
  struct Batch {
    std::vector<int64_t> tokens;
    std::vector<CutSequence> cuts;
    std::vector<WholeSequence> whole;
  };
  std::vector<Batch> batches(static_cast<size_t>(1 + draw(3)));
  for (Batch& batch : batches) batch.tokens.assign(static_cast<size_t>(ranks), 0);
  for (const SampleRef& sample : selection) {
    CutSequence cut{.sample = sample.sample, .length = sample.length};
    cut.ranks.resize(static_cast<size_t>(ranks));
    std::iota(cut.ranks.begin(), cut.ranks.end(), int64_t{0});
    std::shuffle(cut.ranks.begin(), cut.ranks.end(), random);
    const bool whole = draw(3) == 0;
    const int64_t members = whole ? 1 : 1 + draw(ranks);
    cut.ranks.resize(static_cast<size_t>(members));
    std::vector<int64_t> teams;
    for (int64_t team = 1; team * team <= members; ++team) {
      if (members % (team * team) == 0) teams.push_back(team);
    }
    const int64_t kind = draw(4);
    if (kind == 0) cut.sharing = Sharing::Gather;
    else if (kind == 1 && limits.heads > 0 && limits.heads % members == 0 && limits.kv_heads % members == 0) cut.sharing = Sharing::Heads;
    else cut.team = teams[static_cast<size_t>(draw(static_cast<int64_t>(teams.size())))];
    cut.keys_across = cut.team > 1 && draw(2) == 0;
    const auto fits = [&](const Batch& batch) {
      for (int64_t member = 0; member < members; ++member) {
        const auto [first, second] = cut.chunks(member);
        if (batch.tokens[static_cast<size_t>(cut.ranks[static_cast<size_t>(member)])] + first.length + second.length > limit) return false;
      }
      return true;
    };
    size_t b = static_cast<size_t>(draw(static_cast<int64_t>(batches.size())));
    if (!fits(batches[b])) {
      b = static_cast<size_t>(std::find_if(batches.begin(), batches.end(), fits) - batches.begin());
      if (b == batches.size()) batches.push_back({std::vector<int64_t>(static_cast<size_t>(ranks), 0), {}, {}});
    }
    Batch& batch = batches[b];
    for (int64_t member = 0; member < members; ++member) {
      const auto [first, second] = cut.chunks(member);
      batch.tokens[static_cast<size_t>(cut.ranks[static_cast<size_t>(member)])] += first.length + second.length;
    }
    if (whole) batch.whole.push_back({sample, cut.ranks.front()});
    else batch.cuts.push_back(std::move(cut));
  }
  Layout layout = empty_layout("random", ranks, static_cast<int64_t>(batches.size()));
  for (size_t b = 0; b < batches.size(); ++b) {
    place_sequences(layout, static_cast<int64_t>(b), std::move(batches[b].cuts), batches[b].whole, topology);
    const int64_t kind = draw(3);
    if (kind == 0) make_remap(layout, static_cast<int64_t>(b), topology);
    if (kind == 1) remap_at_random(layout, static_cast<int64_t>(b), limit, random);
  }
  return layout;
}

}  // namespace ballast
