// balanced: a step's sequences in as few micro-batches as hold their tokens, each divided over the ranks by cost; tokens even for everything but
// attention where that is faster (arXiv 2509.21841).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "ballast/base/error.h"
#include "ballast/layout/balance.h"
#include "ballast/layout/parts.h"
#include "ballast/layout/remap.h"
#include "ballast/layout/report.h"

namespace ballast {

namespace {

constexpr double kEven = 1.002;   // times that differ by less are equal
constexpr double kPoor = 1.03;    // a step that takes longer than this times the least possible is worth a search
constexpr int64_t kSmall = 1 << 16;   // sequences times ranks up to which everything over all ranks is quick to lay out,
constexpr int64_t kMedium = 1 << 19;  // and groups of ranks

struct Division {
  std::vector<std::vector<SampleRef>> samples;   // by micro-batch, longest first
  std::vector<Balance> batches;
  bool remap = false;
  double seconds = std::numeric_limits<double>::infinity();   // predicted, of the step
};

int64_t tokens_of_samples(std::span<const SampleRef> samples) {
  return std::accumulate(samples.begin(), samples.end(), int64_t{0}, [](int64_t sum, const SampleRef& s) { return sum + s.length; });
}

// Of a step with even compute and nothing on the links.
double even_s(std::span<const SampleRef> samples, const LayoutLimits& limits) {
  double seconds = limits.cost.linear_s(static_cast<double>(tokens_of_samples(samples)) / static_cast<double>(limits.ranks));
  for (const SampleRef& sample : samples) seconds += limits.cost.attention_s(sample.length) / static_cast<double>(limits.ranks);
  return seconds;
}

// What the moves of a remap take on the busiest link.
double remap_s(const Balance& balance, std::span<const SampleRef> samples, const LayoutLimits& limits, const Topology& topology) {
  std::vector<int64_t> held(static_cast<size_t>(limits.ranks), 0);
  for (const WholeSequence& one : balance.whole) held[static_cast<size_t>(one.rank)] += one.sample.length;
  for (const Balance::Ring& ring : balance.rings) {
    const auto members = static_cast<int64_t>(ring.ranks.size());
    for (int64_t member = 0; member < members; ++member) {
      const auto [first, second] = zigzag_chunks(samples[ring.sample].length, members, member);
      held[static_cast<size_t>(ring.ranks[static_cast<size_t>(member)])] += first.length + second.length;
    }
  }
  return moves_s(token_moves(held, even_shares(held, topology), topology), limits.cost, topology);
}

int64_t attention_slots(const LayoutLimits& limits) {
  return limits.options.attention_tokens > 0 ? limits.options.attention_tokens : 2 * limits.micro_tokens;
}

Division divide(std::span<const SampleRef> samples, const LayoutLimits& limits, const Topology& topology, bool remap, double worth, bool quick) {
  Division division;
  division.remap = remap;
  const double token_s = limits.cost.linear_s(static_cast<double>(limits.micro_tokens)) / static_cast<double>(limits.micro_tokens);
  BalanceTask task{limits, topology, remap ? attention_slots(limits) : limits.micro_tokens, remap ? 0 : token_s, {}, quick, worth};
  for (int64_t members = 2; members <= limits.ranks; ++members) {
    if (may_share(limits, members)) task.members.push_back(members);
  }
  const int64_t total = tokens_of_samples(samples), slots = limits.ranks * limits.micro_tokens;
  for (int64_t count = std::max<int64_t>(1, (total + slots - 1) / slots);; ++count) {
    division.samples = split_by_tokens(samples, count, slots);
    division.batches.clear();
    division.seconds = 0;
    for (const auto& batch : division.samples) {
      task.worth = worth - division.seconds;
      std::optional<Balance> found = balance(task, batch);
      if (!found) break;
      division.seconds += found->seconds;
      if (remap) {
        const int64_t tokens = tokens_of_samples(batch);
        division.seconds += limits.cost.linear_s(static_cast<double>((tokens + limits.ranks - 1) / limits.ranks)) + remap_s(*found, batch, limits, topology);
      }
      division.batches.push_back(std::move(*found));
      if (division.seconds >= worth) return {};   // the other way is faster
    }
    if (!division.samples.empty() && division.batches.size() == division.samples.size()) return division;
    if (quick) return {};
  }
}

// This layout, or a simpler one that the same prediction says is faster: where links are slow and room is little, whole sequences in more micro-batches
// than their tokens need, groups by length, or (where that is quick to lay out) everything over all ranks. Looked at only where there is something to gain:
// a gain in the last percents would be paid for in bytes.
Layout fastest(Layout layout, double predicted_s, std::span<const SampleRef> selection, const LayoutLimits& limits) {
  std::vector<int64_t> lengths;
  lengths.reserve(selection.size());
  for (const SampleRef& sample : selection) lengths.push_back(sample.length);
  std::sort(lengths.begin(), lengths.end());
  const double enough_s = kPoor * lower_bound_s(lengths, limits.cost, limits.ranks);
  if (predicted_s <= enough_s) return layout;
  double seconds = describe_layout(layout, limits).step_s;
  if (seconds <= enough_s) return layout;
  struct Simpler {
    Layout (*lay)(std::span<const SampleRef>, const LayoutLimits&);
    int64_t (*needs)(int64_t, const LayoutLimits&);   // absent: whole sequences
    int64_t most = std::numeric_limits<int64_t>::max();   // sequences times ranks
  };
  for (const Simpler& one : {Simpler{lay_packed, nullptr}, {lay_longest_first, nullptr}, {lay_hybrid, needs_hybrid, kMedium}, {lay_context_parallel, needs_context_parallel, kSmall}}) {
    if (static_cast<int64_t>(selection.size()) * limits.ranks > one.most) continue;
    if (one.lay == lay_context_parallel && !may_share(limits, limits.ranks)) continue;
    const bool holds = std::all_of(selection.begin(), selection.end(), [&](const SampleRef& sample) {
      return sample.length <= limits.micro_tokens || (one.needs != nullptr && one.needs(sample.length, limits) <= limits.micro_tokens);
    });
    if (!holds) continue;
    Layout other = one.lay(selection, limits);
    const double its = describe_layout(other, limits).step_s;
    if (its >= seconds) continue;
    seconds = its;
    layout = std::move(other);
  }
  layout.name = "balanced";
  return layout;
}

}  // namespace

int64_t needs_balanced(int64_t length, const LayoutLimits& limits) {
  const int64_t part = least_part(length, limits), attention = limits.options.attention_tokens;
  if (limits.options.remap == Remap::Never) return part;
  if (attention > 0 && part > attention) {   // nothing can be moved
    if (limits.options.remap == Remap::Auto) return part;
    throw Error(ErrorKind::Usage, "a sample does not fit into the attention slots of a micro-batch")
        .at("data.sequence.attention_tokens")
        .found(fmt::format("sample of {} tokens over {} ranks, {} slots on each", length, limits.ranks, attention))
        .cure(fmt::format("set data.sequence.attention_tokens to {} or more", part));
  }
  const int64_t moved = std::max((length + limits.ranks - 1) / limits.ranks, attention > 0 ? 1 : (part + 1) / 2);
  return limits.options.remap == Remap::Always ? moved : std::min(part, moved);
}

Layout lay_balanced(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  const Topology topology = topology_of(limits);
  const std::vector<SampleRef> samples = longest_first(selection);
  if (limits.ranks == 1) {
    Layout layout = lay_packed(selection, limits);
    layout.name = "balanced";
    return layout;
  }
  const Remap wanted = limits.options.remap;
  Division best;
  int64_t most = limits.ranks;
  while (most > 1 && !may_share(limits, most)) --most;
  const auto all_fit = [&](int64_t capacity) {
    return std::all_of(samples.begin(), samples.end(), [&](const SampleRef& sample) {
      return sample.length <= capacity || largest_part(sample.length, most) <= capacity || least_part(sample.length, limits) <= capacity;
    });
  };
  if (wanted == Remap::Always || (wanted == Remap::Auto && all_fit(attention_slots(limits)))) best = divide(samples, limits, topology, true, best.seconds, false);
  if (wanted == Remap::Never || (wanted == Remap::Auto && all_fit(limits.micro_tokens))) {
    // Of equal times the one without moves. Where tokens leave little room a remap is faster: a long search only if that is not even either.
    for (const bool quick : {true, false}) {
      if (quick ? best.batches.empty() : wanted == Remap::Auto && best.seconds <= kPoor * even_s(samples, limits)) continue;
      Division still = divide(samples, limits, topology, false, best.seconds * kEven, quick);
      if (still.seconds <= best.seconds * kEven) best = std::move(still);
    }
  }
  Layout layout = empty_layout("balanced", limits.ranks, static_cast<int64_t>(best.batches.size()));
  for (size_t b = 0; b < best.batches.size(); ++b) {
    std::vector<CutSequence> cuts;
    cuts.reserve(best.batches[b].rings.size());
    for (Balance::Ring& ring : best.batches[b].rings) {
      const SampleRef& sample = best.samples[b][ring.sample];
      CutSequence cut{.sample = sample.sample, .length = sample.length, .ranks = std::move(ring.ranks)};
      cut.level = common_level(cut.ranks, topology);
      set_team(cut, limits, topology);
      cuts.push_back(std::move(cut));
    }
    place_sequences(layout, static_cast<int64_t>(b), std::move(cuts), best.batches[b].whole, topology);
    if (best.remap) make_remap(layout, static_cast<int64_t>(b), topology);
  }
  return wanted == Remap::Always ? layout : fastest(std::move(layout), best.seconds, selection, limits);
}

}  // namespace ballast
