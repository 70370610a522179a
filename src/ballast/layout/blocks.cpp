// Layouts of whole sequences in blocks: bload (random blocks, arXiv 2310.10879) and best-fit (decreasing, the tightest packing).
#include <algorithm>
#include <map>
#include <random>

#include "ballast/layout/parts.h"

namespace ballast {

namespace {

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The same numbers for the same seed, epoch and first sample on every machine.
std::mt19937_64 generator(const SequenceOptions& options, std::span<const SampleRef> selection) {
  std::seed_seq seed{static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32), static_cast<uint32_t>(options.epoch),
                     selection.empty() ? 0u : static_cast<uint32_t>(selection.front().sample)};
  return std::mt19937_64(seed);
}

// Blocks of `slots`: each takes random ones of the distinct lengths that still fit, then a random sample of that length. A rule over lengths, not over
// samples, uses up the rare long ones early, and short ones remain to fill.
std::vector<std::vector<SampleRef>> random_blocks(std::span<const SampleRef> selection, int64_t slots, std::mt19937_64& random) {
  std::map<int64_t, std::vector<SampleRef>> by_length;
  for (const SampleRef& sample : selection) by_length[sample.length].push_back(sample);
  std::vector<int64_t> lengths;   // that are left, growing
  for (const auto& [length, samples] : by_length) lengths.push_back(length);
  std::vector<std::vector<SampleRef>> blocks;
  while (!lengths.empty()) {
    std::vector<SampleRef>& block = blocks.emplace_back();
    for (int64_t room = slots; !lengths.empty() && lengths.front() <= room;) {
      const auto fitting = static_cast<uint64_t>(std::upper_bound(lengths.begin(), lengths.end(), room) - lengths.begin());
      const auto chosen = lengths.begin() + static_cast<int64_t>(random() % fitting);
      std::vector<SampleRef>& samples = by_length[*chosen];
      std::swap(samples[random() % samples.size()], samples.back());
      block.push_back(samples.back());
      room -= *chosen;
      samples.pop_back();
      if (samples.empty()) lengths.erase(chosen);
    }
  }
  return blocks;
}

// Bins opened as they are needed, longest sample first, each into the fullest bin with room.
std::vector<std::vector<SampleRef>> best_fit_bins(std::span<const SampleRef> selection, int64_t capacity) {
  std::vector<std::vector<SampleRef>> bins;
  std::multimap<int64_t, size_t> room;
  for (const SampleRef& sample : longest_first(selection)) {
    auto found = room.lower_bound(sample.length);
    if (found == room.end()) {
      bins.emplace_back();
      found = room.emplace(capacity, bins.size() - 1);
    }
    const auto [free, bin] = *found;
    room.erase(found);
    room.emplace(free - sample.length, bin);
    bins[bin].push_back(sample);
  }
  return bins;
}

}  // namespace

Layout lay_bload(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  int64_t longest = 0;
  for (const SampleRef& sample : selection) longest = std::max(longest, sample.length);
  std::mt19937_64 random = generator(limits.options, selection);
  const auto blocks = random_blocks(selection, longest, random);
  // As many blocks side by side as a micro-batch holds; ranks differ by one block at most.
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t side_by_side = longest == 0 ? 1 : limits.micro_tokens / longest, micro_batches = std::max<int64_t>(1, divided_up(count, side_by_side * limits.ranks));
  Layout layout = empty_layout("bload", limits.ranks, micro_batches);
  for (int64_t b = 0; b < count; ++b) {
    auto& pieces = layout.ranks[static_cast<size_t>(b % limits.ranks)][static_cast<size_t>(b / limits.ranks % micro_batches)].pieces;
    int64_t left = longest;
    for (const SampleRef& sample : blocks[static_cast<size_t>(b)]) {
      pieces.push_back({sample.sample, 0, sample.length, 0});
      left -= sample.length;
    }
    pieces.back().padding = left;
  }
  return layout;
}

Layout lay_best_fit(std::span<const SampleRef> selection, const LayoutLimits& limits) {
  auto bins = best_fit_bins(selection, limits.micro_tokens);
  Layout layout = empty_layout("best-fit", limits.ranks, std::max<int64_t>(1, divided_up(static_cast<int64_t>(bins.size()), limits.ranks)));
  for (size_t b = 0; b < bins.size(); ++b) {
    auto& pieces = layout.ranks[b % static_cast<size_t>(limits.ranks)][b / static_cast<size_t>(limits.ranks)].pieces;
    for (const SampleRef& sample : bins[b]) pieces.push_back({sample.sample, 0, sample.length, 0});
  }
  return layout;
}

}  // namespace ballast
