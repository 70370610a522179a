#include "ballast/layout/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "ballast/base/error.h"
#include "ballast/layout/sharing_cost.h"

namespace ballast {

Layout empty_layout(const std::string& name, int64_t ranks, int64_t micro_batches) {
  Layout layout;
  layout.name = name;
  layout.ranks.assign(static_cast<size_t>(ranks), std::vector<MicroBatchLayout>(static_cast<size_t>(micro_batches)));
  return layout;
}

Topology topology_of(const LayoutLimits& limits) {
  if (!limits.topology) return Topology::flat(limits.ranks);
  if (limits.topology->ranks() != limits.ranks) {
    throw Error(ErrorKind::Usage, "the layout's ranks are not those of the topology")
        .at("topology")
        .found(fmt::format("{} ranks, topology {}", limits.ranks, limits.topology->text()));
  }
  return *limits.topology;
}

int common_level(std::span<const int64_t> ranks, const Topology& topology) {
  const auto [low, high] = std::minmax_element(ranks.begin(), ranks.end());
  return topology.common_level(*low, *high);   // units are intervals of ranks
}

bool may_share(const LayoutLimits& limits, int64_t members) {
  const SequenceOptions& options = limits.options;
  if (options.sharing == Sharing::Ring) return options.team <= 1 || members % (options.team * options.team) == 0;
  if (options.sharing == Sharing::Heads) return limits.heads % members == 0 && limits.kv_heads % members == 0;
  return true;
}

void require_share(const LayoutLimits& limits, int64_t members) {
  if (may_share(limits, members)) return;
  std::vector<int64_t> legal;
  if (limits.options.sharing == Sharing::Ring) {
    for (int64_t team = 1; team * team <= members; ++team) {
      if (members % (team * team) == 0) legal.push_back(team);
    }
    throw Error(ErrorKind::Usage, "the square of a ring's team must divide its ranks")
        .at("data.sequence.team")
        .found(fmt::format("a team of {} in a ring of {} ranks", limits.options.team, members))
        .expected(fmt::format("one of {}", fmt::join(legal, ", ")));
  }
  for (int64_t ranks = 1; ranks <= std::min(limits.heads, limits.kv_heads); ++ranks) {
    if (limits.heads % ranks == 0 && limits.kv_heads % ranks == 0) legal.push_back(ranks);
  }
  throw Error(ErrorKind::Usage, "heads do not divide over the ranks that share a sequence")
      .at("data.sequence.sharing")
      .found(fmt::format("{} query heads and {} key heads over {} ranks", limits.heads, limits.kv_heads, members))
      .expected(fmt::format("one of {} ranks", fmt::join(legal, ", ")))
      .cure("set data.sequence.sharing to ring or gather");
}

void set_team(CutSequence& cut, const LayoutLimits& limits, const Topology& topology) {
  const SequenceOptions& options = limits.options;
  cut.sharing = options.sharing;
  cut.team = 1, cut.keys_across = false;
  if (options.sharing != Sharing::Ring) return;
  if (options.team == 0) {
    choose_team(cut, limits.cost, topology, options.team_memory_bytes, options.route);
  } else {
    cut.team = options.team;
    cut.keys_across = options.team > 1 && options.keys_across;
  }
}

std::vector<SampleRef> longest_first(std::span<const SampleRef> selection) {
  std::vector<SampleRef> samples(selection.begin(), selection.end());
  std::stable_sort(samples.begin(), samples.end(), [](const SampleRef& a, const SampleRef& b) { return a.length > b.length; });
  return samples;
}

int64_t largest_part(int64_t length, int64_t members) {
  // Chunk i of n = 2 P has q or q + 1 tokens, length = n q + r. Chunks i and n - 1 - i are both long where a multiple of n lies strictly between i r and
  // (i + 1) r: for n itself with i = n / r, unless r divides n; then no member has two long ones.
  const int64_t chunks = 2 * members, rest = length % chunks;
  return 2 * (length / chunks) + (rest == 0 ? 0 : chunks % rest == 0 ? 1 : 2);
}

std::vector<std::vector<SampleRef>> split_by_tokens(std::span<const SampleRef> samples, int64_t micro_batches, int64_t capacity) {
  std::vector<std::vector<SampleRef>> batches(static_cast<size_t>(micro_batches));
  if (micro_batches == 1) {
    batches[0].assign(samples.begin(), samples.end());
    const int64_t total = std::accumulate(samples.begin(), samples.end(), int64_t{0}, [](int64_t sum, const SampleRef& s) { return sum + s.length; });
    return total <= capacity ? batches : std::vector<std::vector<SampleRef>>{};
  }
  std::priority_queue<std::pair<int64_t, int64_t>> room;
  for (int64_t b = 0; b < micro_batches; ++b) room.emplace(capacity, -b);
  bool fits = true;
  for (const SampleRef& sample : samples) {
    const auto [free, batch] = room.top();
    if (free < sample.length) { fits = false; break; }
    room.pop();
    room.emplace(free - sample.length, batch);
    batches[static_cast<size_t>(-batch)].push_back(sample);
  }
  if (fits) return batches;
  for (auto& batch : batches) batch.clear();
  std::multimap<int64_t, size_t> tight;
  for (size_t b = 0; b < batches.size(); ++b) tight.emplace_hint(tight.end(), capacity, b);
  for (const SampleRef& sample : samples) {
    const auto found = tight.lower_bound(sample.length);
    if (found == tight.end()) return {};
    const auto [free, batch] = *found;
    tight.erase(found);
    tight.emplace(free - sample.length, batch);
    batches[batch].push_back(sample);
  }
  return batches;
}

int64_t least_part(int64_t length, const LayoutLimits& limits) {
  int64_t least = length;   // over fewer ranks no part is smaller than an even one
  for (int64_t members = limits.ranks; members > 1 && least > (length + members - 1) / members; --members) {
    if (may_share(limits, members)) least = std::min(least, largest_part(length, members));
  }
  return least;
}

void place_sequences(Layout& layout, int64_t index, std::vector<CutSequence> cuts, std::span<const WholeSequence> whole, const Topology& topology) {
  for (CutSequence& cut : cuts) cut.level = common_level(cut.ranks, topology);
  std::stable_sort(cuts.begin(), cuts.end(), [](const CutSequence& a, const CutSequence& b) { return a.level > b.level; });
  std::vector<int64_t> slots(layout.ranks.size(), 0);
  const auto batch_of = [&](int64_t rank) -> MicroBatchLayout& { return layout.ranks[static_cast<size_t>(rank)][static_cast<size_t>(index)]; };
  std::vector<size_t> parts(layout.ranks.size()), pieces(layout.ranks.size());
  for (const CutSequence& cut : cuts) for (int64_t rank : cut.ranks) parts[static_cast<size_t>(rank)] += 1, pieces[static_cast<size_t>(rank)] += 2;
  for (const WholeSequence& one : whole) pieces[static_cast<size_t>(one.rank)] += 1;
  for (size_t r = 0; r < parts.size(); ++r) {
    MicroBatchLayout& batch = batch_of(static_cast<int64_t>(r));
    batch.cuts.reserve(parts[r]), batch.pieces.reserve(pieces[r]);
  }
  for (size_t order = 0; order < cuts.size(); ++order) {
    cuts[order].order = static_cast<int64_t>(order);
    const auto cut = std::make_shared<const CutSequence>(std::move(cuts[order]));
    for (int64_t member = 0; member < cut->members(); ++member) {
      const int64_t rank = cut->ranks[static_cast<size_t>(member)];
      MicroBatchLayout& batch = batch_of(rank);
      int64_t& slot = slots[static_cast<size_t>(rank)];
      batch.cuts.push_back({cut, member, slot});
      for (const Piece& chunk : cut->chunks(member)) {
        if (chunk.length == 0) continue;
        batch.pieces.push_back(chunk);
        slot += chunk.length;
      }
    }
  }
  for (const WholeSequence& one : whole) batch_of(one.rank).pieces.push_back({one.sample.sample, 0, one.sample.length, 0});
}

}  // namespace ballast
