#include "ballast/plan/layout_policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <queue>

#include "ballast/base/error.h"

namespace ballast {

namespace {

void check_lengths(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  for (const SampleRef& sample : selection) {
    if (sample.length < 1) throw Error(ErrorKind::Data, fmt::format("sample {} has length {}", sample.sample, sample.length)).expected("lengths of 1 or more");
    if (sample.length > limits.micro_tokens) {
      throw Error(ErrorKind::Usage, "a sample does not fit into a micro-batch")
          .at("batch.micro_tokens")
          .found(fmt::format("sample of {} tokens, micro-batches of {} tokens", sample.length, limits.micro_tokens))
          .cure(fmt::format("set batch.micro_tokens to {} or more, or data.sequence.max_tokens to {} or less", sample.length, limits.micro_tokens));
    }
  }
}

Layout empty_layout(const std::string& name, int64_t ranks, int64_t micro_batches) {
  Layout layout;
  layout.name = name;
  layout.ranks.assign(static_cast<size_t>(ranks), std::vector<MicroBatchLayout>(static_cast<size_t>(micro_batches)));
  return layout;
}

Layout packed(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  std::vector<size_t> order(selection.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return selection[a].length > selection[b].length; });
  int64_t total = 0;
  for (const SampleRef& sample : selection) total += sample.length;
  const int64_t slots = limits.ranks * limits.micro_tokens;
  for (int64_t micro_batches = std::max<int64_t>(1, (total + slots - 1) / slots);; ++micro_batches) {
    // The least filled bin takes the next sample; if that one has no room no other has, so one more micro-batch is needed.
    using Bin = std::pair<int64_t, int64_t>;  // (tokens, index): index = micro-batch * ranks + rank, so ties go round the ranks first
    std::priority_queue<Bin, std::vector<Bin>, std::greater<>> bins;
    for (int64_t b = 0; b < limits.ranks * micro_batches; ++b) bins.emplace(0, b);
    Layout layout = empty_layout("packed", limits.ranks, micro_batches);
    bool fits = true;
    for (size_t index : order) {
      const SampleRef& sample = selection[index];
      const auto [filled, bin] = bins.top();
      if (filled + sample.length > limits.micro_tokens) {
        fits = false;
        break;
      }
      bins.pop();
      bins.emplace(filled + sample.length, bin);
      layout.ranks[static_cast<size_t>(bin % limits.ranks)][static_cast<size_t>(bin / limits.ranks)].pieces.push_back({sample.sample, 0, sample.length, 0});
    }
    if (fits) return layout;
  }
}

Layout padded(std::span<const SampleRef> selection, const LayoutLimits& limits) {
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

struct Policy {
  const char* name;
  Layout (*make)(std::span<const SampleRef>, const LayoutLimits&);
};
constexpr Policy kPolicies[] = {{"packed", packed}, {"padded", padded}};

}  // namespace

std::vector<std::string> layout_policies() {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) names.push_back(policy.name);
  return names;
}

Layout make_layout(const std::string& policy, std::span<const SampleRef> selection, const LayoutLimits& limits) {
  for (const Policy& row : kPolicies) {
    if (policy != row.name) continue;
    check_lengths(selection, limits);
    return row.make(selection, limits);
  }
  const std::string near = nearest(policy, layout_policies());
  throw Error(ErrorKind::Usage, fmt::format("unknown layout '{}'", printable(policy)))
      .at("data.sequence.layout")
      .expected(fmt::format("one of {}", fmt::join(layout_policies(), ", ")))
      .cure(near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace ballast
