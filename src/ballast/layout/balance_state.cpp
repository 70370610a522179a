#include "ballast/layout/balance_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

namespace ballast {

BalanceState::BalanceState(const BalanceTask& task, std::span<const SampleRef> samples) : task_(task), samples_(samples) {
  const auto ranks = static_cast<size_t>(task.topology.ranks());
  costs_.reserve(samples.size());
  for (size_t item = 0; item < samples.size(); ++item) costs_.push_back(member_cost(item, 1));
  mean_ = std::accumulate(costs_.begin(), costs_.end(), 0.0) / static_cast<double>(ranks);
  load_.resize(ranks), link_s_.resize(ranks), tokens_.resize(ranks), whole_.resize(ranks);
  for (auto& items : whole_) items.reserve(2 * samples.size() / ranks + 1);
  for (int level = 0; level < task.topology.level_count(); ++level) {
    sizes_.push_back(task.topology.group_size(level));
    unit_load_.emplace_back(ranks / static_cast<size_t>(sizes_.back()));
  }
}

double BalanceState::member_cost(size_t item, int64_t members) const {
  const int64_t length = samples_[item].length;
  return task_.limits.cost.attention_s(length, members) + task_.token_s * static_cast<double>(length) / static_cast<double>(members);
}

void BalanceState::clear() {
  std::fill(load_.begin(), load_.end(), 0.0);
  std::fill(link_s_.begin(), link_s_.end(), 0.0);
  std::fill(tokens_.begin(), tokens_.end(), 0);
  for (auto& units : unit_load_) std::fill(units.begin(), units.end(), 0.0);
  for (auto& items : whole_) items.clear();
  rings_.clear();
}

void BalanceState::change(int64_t rank, double load, int64_t tokens, double link_s) {
  const auto r = static_cast<size_t>(rank);
  load_[r] += load;
  tokens_[r] += tokens;
  link_s_[r] += link_s;
  for (size_t level = 0; level < sizes_.size(); ++level) unit_load_[level][r / static_cast<size_t>(sizes_[level])] += load;
}

void BalanceState::add_whole(uint32_t item, int64_t rank) {
  auto& items = whole_[static_cast<size_t>(rank)];
  items.insert(std::upper_bound(items.begin(), items.end(), item), item);
  change(rank, costs_[item], samples_[item].length, 0);
}

void BalanceState::remove_whole(uint32_t item, int64_t rank) {
  auto& items = whole_[static_cast<size_t>(rank)];
  items.erase(std::lower_bound(items.begin(), items.end(), item));
  change(rank, -costs_[item], -samples_[item].length, 0);
}

double BalanceState::ring_link_s(uint32_t item, int64_t members, int level) {
  if (task_.limits.cost.links.empty()) return 0;
  shape_.length = samples_[item].length;
  shape_.ranks.resize(static_cast<size_t>(members));
  shape_.level = level;
  set_team(shape_, task_.limits, task_.topology);
  return sharing_s(task_.limits.cost, shape_, task_.topology, task_.limits.options.route);
}

double BalanceState::ring_link_s(uint32_t item, std::span<const int64_t> ranks) {
  return task_.limits.cost.links.empty() ? 0 : ring_link_s(item, static_cast<int64_t>(ranks.size()), common_level(ranks, task_.topology));
}

void BalanceState::add_ring(uint32_t item, std::vector<int64_t> ranks) {
  const auto members = static_cast<int64_t>(ranks.size());
  work_ += members;
  Ring ring{item, common_level(ranks, task_.topology), member_cost(item, members), ring_link_s(item, ranks), std::move(ranks)};
  for (int64_t member = 0; member < members; ++member) {
    const auto [first, second] = zigzag_chunks(samples_[item].length, members, member);
    change(ring.ranks[static_cast<size_t>(member)], ring.cost, first.length + second.length, ring.link_s);
  }
  rings_.push_back(std::move(ring));
}

BalanceState::Ring BalanceState::take_ring(size_t index) {
  std::swap(rings_[index], rings_.back());
  Ring ring = std::move(rings_.back());
  rings_.pop_back();
  const auto members = static_cast<int64_t>(ring.ranks.size());
  for (int64_t member = 0; member < members; ++member) {
    const auto [first, second] = zigzag_chunks(samples_[ring.item].length, members, member);
    change(ring.ranks[static_cast<size_t>(member)], -ring.cost, -first.length - second.length, -ring.link_s);
  }
  return ring;
}

double BalanceState::seconds() const {
  double most = 0;
  for (int64_t rank = 0; rank < ranks(); ++rank) most = std::max(most, time(rank));
  return most;
}

Balance BalanceState::result() const {
  Balance balance;
  balance.load = load_;
  balance.mean = mean_;
  balance.seconds = seconds();
  balance.whole.reserve(samples_.size());
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    for (uint32_t item : whole_[static_cast<size_t>(rank)]) balance.whole.push_back({samples_[item], rank});
  }
  std::vector<const Ring*> rings;
  for (const Ring& ring : rings_) rings.push_back(&ring);
  std::sort(rings.begin(), rings.end(), [](const Ring* a, const Ring* b) { return a->item < b->item; });
  for (const Ring* ring : rings) balance.rings.push_back({ring->item, ring->ranks});
  return balance;
}

}  // namespace ballast
