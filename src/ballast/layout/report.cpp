#include "ballast/layout/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ballast/layout/parts.h"
#include "ballast/layout/remap.h"
#include "ballast/layout/route.h"
#include "ballast/layout/sharing_cost.h"

namespace ballast {

namespace {

// What the prediction takes for granted about links.
void add_link_notes(const Topology& topology, const LayoutLimits& limits, LayoutReport& report) {
  std::vector<std::string> single, free;
  for (int level = 0; level < topology.level_count(); ++level) {
    const Level& one = topology.level(level);
    if (one.size > 1 && limits.cost.link_s(level, 1e9) == 0) free.push_back(one.name);
    const bool rings = report.shortest_cut[static_cast<size_t>(level)] > 0 && limits.options.sharing == Sharing::Ring && limits.options.route;
    if (rings && level > 0 && topology.links(level) == 1) single.push_back(one.name);
  }
  if (!single.empty()) report.notes.push_back(fmt::format("hops of rings over level {} are not spread: there is one link per unit (topology: links)", fmt::join(single, ", ")));
  if (!free.empty()) report.notes.push_back(fmt::format("no bandwidth given for level {}: links count as free", fmt::join(free, ", ")));
}

}  // namespace

std::vector<int64_t> zone_boundaries(const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  std::vector<int64_t> from;
  for (int level = 0; level < topology.level_count(); ++level) {
    CutSequence cut{.level = level};
    for (int64_t rank = 0; rank < topology.group_size(level); ++rank) cut.ranks.push_back(rank);
    const auto hidden = [&](int64_t length) {
      cut.length = length;
      set_team(cut, limits, topology);
      return sharing_s(limits.cost, cut, topology, limits.options.route) <= limits.cost.attention_s(length, cut.members());
    };
    if (!may_share(limits, cut.members()) || cut.members() < 2) {
      from.push_back(cut.members() < 2 ? 1 : -1);
      continue;
    }
    int64_t low = 0, high = 1;   // hidden at `high`
    while (!hidden(high) && high < int64_t{1} << 32) low = high, high *= 2;
    if (!hidden(high)) {
      from.push_back(-1);
      continue;
    }
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (hidden(middle) ? high : low) = middle;
    }
    from.push_back(high);
  }
  return from;
}

double attention_s(const MicroBatchLayout& batch, const SequenceCost& cost) {
  double seconds = 0;
  for (const CutPart& part : batch.cuts) if (part.member >= 0) seconds += cost.attention_s(part.cut->length, part.cut->members());
  for (const Piece& piece : batch.whole_pieces()) seconds += cost.attention_s(piece.length + piece.padding);
  return seconds;
}

double lower_bound_s(std::span<const int64_t> lengths, const SequenceCost& cost, int64_t ranks) {
  const auto tokens = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  double seconds = static_cast<double>(cost.layer_count()) * tokens * cost.linear.least_rate(tokens);
  for (const int64_t length : lengths) seconds += cost.least_attention_s(length);
  return seconds / static_cast<double>(ranks);
}

LayoutReport describe_layout(const Layout& layout, const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  const SequenceCost& cost = limits.cost;
  const auto levels = static_cast<size_t>(topology.level_count());
  LayoutReport report;
  report.name = layout.name;
  report.micro_batches = layout.micro_batches();
  report.tokens = layout.tokens(), report.slots = layout.slots();
  report.ranks.resize(layout.ranks.size());
  report.sharing_bytes.assign(levels, 0.0), report.moved_bytes.assign(levels, 0.0), report.shortest_cut.assign(levels, 0);
  report.hidden_from = zone_boundaries(limits);
  const auto ranks = static_cast<double>(layout.ranks.size());
  double most_cost = 0, mean_cost = 0, most_slots = 0;
  std::vector<int64_t> lengths;   // of all sequences
  std::vector<std::set<int64_t>> exposed(levels);
  for (size_t m = 0; m < static_cast<size_t>(report.micro_batches); ++m) {
    bool moves = false;
    std::vector<TokenMove> moved;
    for (size_t r = 0; r < layout.ranks.size(); ++r) {
      const MicroBatchLayout& batch = layout.ranks[r][m];
      moves |= batch.remapped();
      for (const TokenRun& run : batch.arrive) {
        if (run.rank != static_cast<int64_t>(r)) moved.push_back({static_cast<int64_t>(r), run.rank, run.count});
      }
    }
    double slowest = 0, slowest_attention = 0, slowest_linear = 0, heaviest = 0, all = 0;
    int64_t slots = 0;
    for (size_t r = 0; r < layout.ranks.size(); ++r) {
      const MicroBatchLayout& batch = layout.ranks[r][m];
      RankSeconds seconds;
      seconds.attention = attention_s(batch, cost);
      for (const CutPart& part : batch.cuts) {
        if (part.member < 0) continue;
        const CutSequence& cut = *part.cut;
        const double its = sharing_s(cost, cut, topology, limits.options.route);
        seconds.sharing += its;
        if (part.member != 0) continue;
        ++report.cut_sequences;
        lengths.push_back(cut.length);
        add_sharing_bytes(cost, cut, topology, limits.options.route, report.sharing_bytes);
        if (cut.level < 0) continue;
        int64_t& shortest = report.shortest_cut[static_cast<size_t>(cut.level)];
        shortest = shortest == 0 ? cut.length : std::min(shortest, cut.length);
        if (its > cost.attention_s(cut.length, cut.members())) exposed[static_cast<size_t>(cut.level)].insert(cut.length);
      }
      for (const Piece& piece : batch.whole_pieces()) {
        report.longest_whole = std::max(report.longest_whole, piece.length);
        lengths.push_back(piece.length);
      }
      seconds.linear = cost.linear_s(static_cast<double>(batch.slots()));
      slots = std::max(slots, batch.slots());
      const double load = moves ? seconds.attention : seconds.compute();
      heaviest = std::max(heaviest, load);
      all += load;
      slowest = std::max(slowest, std::max(seconds.attention, seconds.sharing) + seconds.linear);
      slowest_attention = std::max({slowest_attention, seconds.attention, seconds.sharing});
      slowest_linear = std::max(slowest_linear, seconds.linear);
      RankSeconds& sum = report.ranks[r];
      sum.attention += seconds.attention, sum.linear += seconds.linear, sum.sharing += seconds.sharing;
    }
    report.remapped_micro_batches += moves ? 1 : 0;
    const double moving = moves_s(moved, cost, topology);
    const std::vector<int64_t> by_level = tokens_by_level(moved, topology);
    for (size_t level = 0; level < levels; ++level) {
      report.moved_bytes[level] += static_cast<double>(by_level[level]) * static_cast<double>(cost.moved_bytes() * cost.layer_count());
    }
    report.remap_s += moving;
    report.step_s += moves ? slowest_attention + moving + slowest_linear : slowest;
    most_cost += heaviest, mean_cost += all / ranks;
    most_slots += static_cast<double>(slots);
  }
  report.cost_imbalance = mean_cost > 0 ? most_cost / mean_cost : 1;
  report.token_imbalance = report.slots > 0 ? most_slots * ranks / static_cast<double>(report.slots) : 1;
  std::sort(lengths.begin(), lengths.end());   // sums in one order are equal
  report.lower_bound_s = lower_bound_s(lengths, cost, static_cast<int64_t>(layout.ranks.size()));
  for (size_t level = 0; level < levels; ++level) {
    if (exposed[level].empty()) continue;
    const int64_t from = report.hidden_from[level];
    report.notes.push_back(fmt::format("{} cut sequence lengths over level '{}' (the shortest: {} tokens) do not hide their transfers; {}", exposed[level].size(),
                                       topology.level(static_cast<int>(level)).name, *exposed[level].begin(),
                                       from < 0 ? "no length does" : fmt::format("a sequence shared by a whole unit does from {} tokens on", from)));
  }
  add_link_notes(topology, limits, report);
  return report;
}

}  // namespace ballast
