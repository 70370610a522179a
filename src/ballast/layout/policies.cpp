#include "ballast/layout/policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "ballast/base/error.h"
#include "ballast/layout/parts.h"
#include "ballast/layout/route.h"

namespace ballast {

namespace {

// Bins of equal capacity, index = micro-batch * ranks + rank. Two ways to fill them, longest sample first.
struct Bins {
  std::vector<int64_t> bin_of;   // by position in the order; empty if some sample found no room
};

// Into the least filled bin: even loads, ties go round the ranks first.
Bins spread(std::span<const int64_t> lengths, int64_t bins, int64_t capacity) {
  using Bin = std::pair<int64_t, int64_t>;  // tokens, index
  std::priority_queue<Bin, std::vector<Bin>, std::greater<>> queue;
  for (int64_t b = 0; b < bins; ++b) queue.emplace(0, b);
  Bins result;
  for (int64_t length : lengths) {
    const auto [filled, bin] = queue.top();
    if (filled + length > capacity) return {};   // the others are no emptier
    queue.pop();
    queue.emplace(filled + length, bin);
    result.bin_of.push_back(bin);
  }
  return result;
}

// Into the fullest bin that has room (best fit decreasing): tighter, less even.
Bins best_fit(std::span<const int64_t> lengths, int64_t bins, int64_t capacity) {
  std::multimap<int64_t, int64_t> room;   // free slots -> bin
  for (int64_t b = 0; b < bins; ++b) room.emplace_hint(room.end(), capacity, b);
  Bins result;
  for (int64_t length : lengths) {
    const auto found = room.lower_bound(length);
    if (found == room.end()) return {};
    const auto [free, bin] = *found;
    room.erase(found);
    room.emplace(free - length, bin);
    result.bin_of.push_back(bin);
  }
  return result;
}

}  // namespace

Layout lay_packed(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  std::vector<size_t> order(selection.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return selection[a].length > selection[b].length; });
  std::vector<int64_t> lengths;
  for (size_t index : order) lengths.push_back(selection[index].length);
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t slots = limits.ranks * limits.micro_tokens;
  for (int64_t micro_batches = std::max<int64_t>(1, (total + slots - 1) / slots);; ++micro_batches) {
    Bins bins = spread(lengths, limits.ranks * micro_batches, limits.micro_tokens);
    if (bins.bin_of.size() != lengths.size()) bins = best_fit(lengths, limits.ranks * micro_batches, limits.micro_tokens);
    if (bins.bin_of.size() != lengths.size()) continue;
    Layout layout = empty_layout("packed", limits.ranks, micro_batches);
    for (size_t i = 0; i < order.size(); ++i) {
      const SampleRef& sample = selection[order[i]];
      const int64_t bin = bins.bin_of[i];
      layout.ranks[static_cast<size_t>(bin % limits.ranks)][static_cast<size_t>(bin / limits.ranks)].pieces.push_back({sample.sample, 0, sample.length, 0});
    }
    return layout;
  }
}

Layout lay_padded(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  std::vector<MicroBatchLayout> batches;
  int64_t longest = 0;
  for (const SampleRef& sample : selection) {
    const int64_t rows = batches.empty() ? 0 : static_cast<int64_t>(batches.back().pieces.size());
    const int64_t widest = std::max(longest, sample.length);
    if (batches.empty() || widest * (rows + 1) > limits.micro_tokens) {
      batches.emplace_back();
      longest = 0;
    }
    longest = std::max(longest, sample.length);
    batches.back().pieces.push_back({sample.sample, 0, sample.length, 0});
  }
  for (MicroBatchLayout& batch : batches) {
    int64_t widest = 0;
    for (const Piece& piece : batch.pieces) widest = std::max(widest, piece.length);
    for (Piece& piece : batch.pieces) piece.padding = widest - piece.length;
  }
  const int64_t micro_batches = std::max<int64_t>(1, (static_cast<int64_t>(batches.size()) + limits.ranks - 1) / limits.ranks);
  Layout layout = empty_layout("padded", limits.ranks, micro_batches);
  for (size_t b = 0; b < batches.size(); ++b) {
    layout.ranks[b % static_cast<size_t>(limits.ranks)][b / static_cast<size_t>(limits.ranks)] = std::move(batches[b]);
  }
  return layout;
}

namespace {

struct Policy {
  const char* name;
  Layout (*make)(std::span<const SampleRef>, const LayoutLimits&);
  int64_t (*needs)(int64_t, const LayoutLimits&);   // micro_tokens of a sample; absent: keeps it on one rank
};
constexpr Policy kPolicies[] = {{"packed", lay_packed, nullptr},
                                {"padded", lay_padded, nullptr},
                                {"balanced", lay_balanced, needs_balanced},
                                {"context-parallel", lay_context_parallel, needs_context_parallel},
                                {"bload", lay_bload, nullptr},
                                {"best-fit", lay_best_fit, nullptr},
                                {"longest-first", lay_longest_first, nullptr},
                                {"hybrid", lay_hybrid, needs_hybrid}};

const Policy& policy_of(const std::string& name) {
  for (const Policy& policy : kPolicies) if (name == policy.name) return policy;
  const std::string near = nearest(name, layout_policies());
  throw Error(ErrorKind::Usage, fmt::format("unknown layout '{}'", printable(name)))
      .at("data.sequence.layout")
      .expected(fmt::format("one of {}", fmt::join(layout_policies(), ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

int64_t needs(const Policy& policy, int64_t length, const LayoutLimits& limits) {
  return policy.needs == nullptr || limits.ranks == 1 ? length : policy.needs(length, limits);
}

void check_lengths(const Policy& policy, std::span<const SampleRef> selection, const LayoutLimits& limits) {
  const SampleRef* longest = nullptr;
  for (const SampleRef& sample : selection) {
    if (sample.length < 1) throw Error(ErrorKind::Data, fmt::format("sample {} has length {}", sample.sample, sample.length)).expected("lengths of 1 or more");
    if (longest == nullptr || sample.length > longest->length) longest = &sample;
  }
  if (longest == nullptr) return;
  const SampleRef* worst = longest;
  int64_t needed = needs(policy, longest->length, limits);
  if (policy.needs != nullptr) {   // a shorter one may need more (largest_part)
    const int64_t attention = limits.options.attention_tokens;
    const int64_t fits = attention > 0 ? std::min(attention, limits.micro_tokens) : limits.micro_tokens;
    for (const SampleRef& sample : selection) {
      if (sample.length <= fits || sample.length <= needed) continue;
      if (const int64_t its = needs(policy, sample.length, limits); its > needed) needed = its, worst = &sample;
    }
  }
  if (needed <= limits.micro_tokens) return;
  throw Error(ErrorKind::Usage, "a sample does not fit into a micro-batch")
      .at("batch.micro_tokens")
      .found(fmt::format("sample of {} tokens, micro-batches of {} tokens on {} ranks", worst->length, limits.micro_tokens, limits.ranks))
      .cure(fmt::format("set batch.micro_tokens to {} or more, or a smaller data.sequence.max_tokens", needed));
}

}  // namespace

std::vector<std::string> layout_policies() {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) names.push_back(policy.name);
  return names;
}

bool layout_cuts(const std::string& policy) {
  return std::any_of(std::begin(kPolicies), std::end(kPolicies), [&](const Policy& row) { return policy == row.name && row.needs != nullptr; });
}

int64_t least_micro_tokens(const std::string& policy, int64_t longest, const LayoutLimits& limits) {
  const Policy& row = policy_of(policy);
  int64_t most = needs(row, longest, limits);
  // No sequence needs more than one of the last 2 P lengths, in P parts. On more ranks than one would try one by one it is right to within a slot.
  constexpr int64_t kMostRanks = 4096;
  if (row.needs == nullptr || limits.ranks == 1 || limits.ranks > kMostRanks) return most;
  for (int64_t length = longest - 1; length >= std::max<int64_t>(1, longest - 2 * limits.ranks); --length) most = std::max(most, needs(row, length, limits));
  return most;
}

Layout make_layout(const std::string& policy, std::span<const SampleRef> selection, const LayoutLimits& limits) {
  const Policy& row = policy_of(policy);
  topology_of(limits);   // of so many ranks
  check_lengths(row, selection, limits);
  Layout layout = row.make(selection, limits);
  if (limits.topology && limits.options.route) route_rings(layout, *limits.topology);
  return layout;
}

}  // namespace ballast
