// Layouts for comparison: whole sequences by cost (longest-first), and groups of ranks by length class (hybrid).
#include <algorithm>
#include <queue>

#include "ballast/layout/balance.h"
#include "ballast/layout/parts.h"

namespace ballast {

Layout lay_longest_first(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  const std::vector<SampleRef> samples = longest_first(selection);
  const double token_s = limits.cost.linear_s(static_cast<double>(limits.micro_tokens)) / static_cast<double>(limits.micro_tokens);
  const BalanceTask task{.limits = limits, .topology = topology, .capacity = limits.micro_tokens, .token_s = token_s};
  int64_t total = 0;
  for (const SampleRef& sample : samples) total += sample.length;
  const int64_t slots = limits.ranks * limits.micro_tokens;
  for (int64_t count = std::max<int64_t>(1, (total + slots - 1) / slots);; ++count) {
    const auto batches = split_by_tokens(samples, count, slots);
    std::vector<Balance> found;
    for (const auto& batch : batches) {
      std::optional<Balance> one = balance_longest_first(task, batch);
      if (!one) break;
      found.push_back(std::move(*one));
    }
    if (batches.empty() || found.size() != batches.size()) continue;
    Layout layout = empty_layout("longest-first", limits.ranks, count);
    for (size_t b = 0; b < found.size(); ++b) place_sequences(layout, static_cast<int64_t>(b), {}, found[b].whole, topology);
    return layout;
  }
}

namespace {

// Of groups: powers of two, and all ranks.
std::vector<int64_t> group_sizes(const LayoutLimits& limits) {
  std::vector<int64_t> sizes;
  for (int64_t members = 1; members < limits.ranks; members *= 2) {
    if (members == 1 || may_share(limits, members)) sizes.push_back(members);
  }
  if (limits.ranks == 1 || may_share(limits, limits.ranks)) sizes.push_back(limits.ranks);
  return sizes;
}

// Sequences of one class over the groups of as many micro-batches as they need, the least loaded group first.
void place_class(Layout& layout, std::span<const SampleRef> samples, int64_t members, const LayoutLimits& limits, const Topology& topology) {
  const int64_t groups = limits.ranks / members;   // ranks beyond them stay idle
  for (int64_t count = 1;; ++count) {
    using Bin = std::pair<int64_t, int64_t>;   // slots of a member, index
    std::priority_queue<Bin, std::vector<Bin>, std::greater<>> bins;
    for (int64_t b = 0; b < groups * count; ++b) bins.emplace(0, b);
    std::vector<int64_t> bin_of;
    for (const SampleRef& sample : samples) {
      const auto [filled, bin] = bins.top();
      const int64_t part = largest_part(sample.length, members);
      if (filled + part > limits.micro_tokens) break;
      bins.pop();
      bins.emplace(filled + part, bin);
      bin_of.push_back(bin);
    }
    if (bin_of.size() != samples.size()) continue;
    for (int64_t batch = 0; batch < count; ++batch) {
      std::vector<CutSequence> cuts;
      std::vector<WholeSequence> whole;
      for (size_t i = 0; i < samples.size(); ++i) {
        if (bin_of[i] / groups != batch) continue;
        const int64_t first = bin_of[i] % groups * members;
        if (members == 1) {
          whole.push_back({samples[i], first});
          continue;
        }
        CutSequence cut{.sample = samples[i].sample, .length = samples[i].length};
        for (int64_t rank = first; rank < first + members; ++rank) cut.ranks.push_back(rank);
        cut.level = common_level(cut.ranks, topology);
        set_team(cut, limits, topology);
        cuts.push_back(std::move(cut));
      }
      for (auto& rank : layout.ranks) rank.emplace_back();
      place_sequences(layout, layout.micro_batches() - 1, std::move(cuts), whole, topology);
    }
    return;
  }
}

}  // namespace

int64_t needs_hybrid(int64_t length, const LayoutLimits& limits) {
  int64_t needed = length;
  for (int64_t members : group_sizes(limits)) needed = std::min(needed, largest_part(length, members));
  return needed;
}

Layout lay_hybrid(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  const std::vector<SampleRef> samples = longest_first(selection);
  const std::vector<int64_t> sizes = group_sizes(limits);
  Layout layout = empty_layout("hybrid", limits.ranks, 0);
  std::vector<std::vector<SampleRef>> classes(sizes.size());
  for (const SampleRef& sample : samples) {
    size_t size = 0;
    while (largest_part(sample.length, sizes[size]) > limits.micro_tokens) ++size;
    classes[size].push_back(sample);
  }
  for (size_t size = classes.size(); size-- > 0;) {
    if (!classes[size].empty()) place_class(layout, classes[size], sizes[size], limits, topology);
  }
  if (layout.micro_batches() == 0) return empty_layout("hybrid", limits.ranks, 1);
  return layout;
}

}  // namespace ballast
