// The greedy division: every sequence in turn, longest first, to where it stays below a limit (balance_state.h).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "ballast/layout/balance_state.h"

namespace ballast {

namespace {

constexpr double kTiny = 5e-3;        // of the mean: what costs less is not cut for balance, nor into parts that cost less
constexpr int64_t kFailures = 8;      // rings in a row above the limit after which only tokens ask for more
constexpr int64_t kManyRanks = 128;   // most ranks that are sorted one by one for a ring

// The least loaded rank with room for a sequence, while lengths fall and loads rise.
class LightestRanks {
 public:
  explicit LightestRanks(BalanceState& state) : state_(state) {}

  int64_t with_room(int64_t length) {   // -1: none
    if (stale_) renew();
    while (!parked_.empty() && parked_.top().first >= length) {
      const int64_t rank = parked_.top().second;
      parked_.pop();
      light_.emplace(state_.load(rank), rank);
    }
    for (; !light_.empty(); light_.pop()) {
      const auto [load_then, rank] = light_.top();
      if (load_then != state_.load(rank)) continue;
      if (state_.room(rank) >= length) return rank;
      parked_.emplace(state_.room(rank), rank);
    }
    return -1;
  }

  // The rank that with_room gave last has taken something on.
  void loaded(int64_t rank) {
    light_.pop();
    light_.emplace(state_.load(rank), rank);
  }
  // These have. Large rings change most ranks at once.
  void loaded(std::span<const int64_t> ranks) {
    const auto added = static_cast<int64_t>(ranks.size());
    stale_ |= 8 * added > state_.ranks() || static_cast<int64_t>(light_.size()) + added > 8 * state_.ranks();
    if (!stale_) for (int64_t rank : ranks) light_.emplace(state_.load(rank), rank);
  }

 private:
  using Entry = std::pair<double, int64_t>;   // load, rank; outdated where the load has changed since

  void renew() {
    std::vector<Entry> entries;
    entries.reserve(4 * static_cast<size_t>(state_.ranks()));
    for (int64_t rank = 0; rank < state_.ranks(); ++rank) entries.emplace_back(state_.load(rank), rank);
    light_ = Light(std::greater<>(), std::move(entries));
    parked_ = {};
    stale_ = false;
    state_.add_work(state_.ranks());
  }

  BalanceState& state_;
  using Light = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;
  Light light_;
  std::priority_queue<std::pair<int64_t, int64_t>> parked_;   // room, rank: without room for what came last
  bool stale_ = true;                                         // both are to be made anew
};

}  // namespace

// Ring members beyond which parts are tiny.
int64_t BalanceState::parts(uint32_t item) const {
  return mean_ > 0 ? static_cast<int64_t>(std::min(costs_[item] / (kTiny * mean_), static_cast<double>(ranks()))) : 1;
}

// `ranks` have room for a part of `members`. Rings of the k lightest of them, k from `members` on; the first below the limit, or the best.
void BalanceState::try_ranks(uint32_t item, int64_t members, double limit, int level, std::vector<int64_t>& ranks, Candidate& best) {
  work_ += static_cast<int64_t>(ranks.size());
  std::sort(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) {
    const double left = load(a), right = load(b);
    return left != right ? left < right : a < b;
  });
  int64_t found = 0;
  size_t counted = 0;    // of whose links `busiest` is the longest, and whose least room is `space`
  double busiest = 0;
  int64_t space = task_.capacity;
  const auto& legal = task_.members;
  const int64_t most = std::min(std::max(members, parts(item)), static_cast<int64_t>(ranks.size()));
  for (auto k = std::lower_bound(legal.begin(), legal.end(), members); k != legal.end() && (*k <= most || found == 0); ++k) {
    if (*k > static_cast<int64_t>(ranks.size())) break;
    const double last = load(ranks[static_cast<size_t>(*k) - 1]);
    if (last >= best.time) break;
    for (; counted < static_cast<size_t>(*k); ++counted) {
      busiest = std::max(busiest, link_s(ranks[counted]));
      space = std::min(space, room(ranks[counted]));
    }
    if (largest_part(samples_[item].length, *k) > space) continue;
    const double time = std::max(last + member_cost(item, *k), busiest + ring_link_s(item, *k, level));
    if (time < best.time) best.time = time, found = *k;
    if (time <= limit) break;
  }
  if (found > 0) best.ranks.assign(ranks.begin(), ranks.begin() + found);
}

void BalanceState::try_unit(uint32_t item, int64_t members, double limit, int level, int64_t unit, Candidate& best) {
  const int64_t size = sizes_[static_cast<size_t>(level)], below = level == 0 ? 1 : sizes_[static_cast<size_t>(level) - 1], children = size / below;
  work_ += size;
  const int64_t part = largest_part(samples_[item].length, members);
  const auto fits = [&](int64_t rank) { return part <= room(rank); };
  std::vector<int64_t> ranks;
  if (level == 0) {
    for (int64_t rank = unit * size; rank < (unit + 1) * size; ++rank) if (fits(rank)) ranks.push_back(rank);
    return try_ranks(item, members, limit, level, ranks, best);
  }
  const auto& loads = unit_load_[static_cast<size_t>(level) - 1];
  std::vector<int64_t> order(static_cast<size_t>(children));
  std::iota(order.begin(), order.end(), unit * children);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double left = loads[static_cast<size_t>(a)], right = loads[static_cast<size_t>(b)];
    return left != right ? left < right : a < b;
  });
  // Whole units where that is possible: their ranks stay level, and few transfers leave a unit.
  const auto& legal = task_.members;
  double heaviest = 0, busiest = 0;
  int64_t space = task_.capacity;
  size_t found = 0;
  for (int64_t child : order) {
    for (int64_t rank = child * below; rank < (child + 1) * below; ++rank) {
      if (!fits(rank)) continue;
      ranks.push_back(rank);
      heaviest = std::max(heaviest, load(rank));
      busiest = std::max(busiest, link_s(rank));
      space = std::min(space, room(rank));
    }
    if (heaviest >= best.time) break;
    const auto count = static_cast<int64_t>(ranks.size());
    if (count > std::max(below, parts(item)) && found > 0) break;
    if (count < members || !std::binary_search(legal.begin(), legal.end(), count) || largest_part(samples_[item].length, count) > space) continue;
    const double time = std::max(heaviest + member_cost(item, count), busiest + ring_link_s(item, count, level));
    if (time < best.time) best.time = time, found = ranks.size();
    if (time <= limit) break;
  }
  if (found > 0) best.ranks.assign(ranks.begin(), ranks.begin() + static_cast<int64_t>(found));
  if (best.time <= limit || (found > 0 && parts(item) <= members)) return;
  ranks.clear();
  for (int64_t child : order) {
    for (int64_t rank = child * below; rank < (child + 1) * below; ++rank) if (fits(rank)) ranks.push_back(rank);
    if (static_cast<int64_t>(ranks.size()) >= std::max(members, kManyRanks)) break;
  }
  try_ranks(item, members, limit, level, ranks, best);
}

// Innermost level first; of a level the unit that a walk down the least loaded units ends at. Where no such unit has room for the tokens, all others,
// and then larger rings.
BalanceState::Candidate BalanceState::find_ring(uint32_t item, int64_t members, double limit) {
  Candidate best;
  const auto& legal = task_.members;
  if (legal.empty()) return best;
  for (members = std::min(members, legal.back());;) {
    const int64_t least = *std::lower_bound(legal.begin(), legal.end(), members);
    for (const bool everywhere : {false, true}) {
      if (everywhere && task_.quick) break;
      for (int level = 0; level < task_.topology.level_count(); ++level) {
        if (sizes_[static_cast<size_t>(level)] < least) continue;
        if (everywhere) {
          for (int64_t unit = 0; unit < static_cast<int64_t>(unit_load_[static_cast<size_t>(level)].size()); ++unit) try_unit(item, members, limit, level, unit, best);
        } else {
          int64_t unit = 0;
          for (int above = task_.topology.outermost(); above > level; --above) {
            const int64_t children = sizes_[static_cast<size_t>(above)] / sizes_[static_cast<size_t>(above) - 1];
            const auto begin = unit_load_[static_cast<size_t>(above) - 1].begin() + unit * children;
            unit = unit * children + (std::min_element(begin, begin + children) - begin);
          }
          try_unit(item, members, limit, level, unit, best);
        }
        if (best.time <= limit) return best;
      }
      if (!best.ranks.empty()) return best;
    }
    if (least == legal.back() || task_.quick) return best;
    // Up to twice as many, those with the smallest parts.
    const auto smaller = [&](int64_t a, int64_t b) { return largest_part(samples_[item].length, a) < largest_part(samples_[item].length, b); };
    const auto next = std::upper_bound(legal.begin(), legal.end(), least);
    members = *std::min_element(next, std::max(std::next(next), std::upper_bound(next, legal.end(), 2 * least)), smaller);
  }
}

bool BalanceState::place(double limit, size_t cut, int64_t least) {
  LightestRanks light(*this);
  work_ += static_cast<int64_t>(samples_.size());
  int64_t failures = 0;   // rings in a row that did not stay below the limit
  for (size_t i = 0; i < samples_.size(); ++i) {
    const auto item = static_cast<uint32_t>(i);
    const int64_t length = samples_[i].length;
    if (task_.quick && spent()) return false;
    const int64_t lightest = i >= cut && length <= task_.capacity ? light.with_room(length) : -1;
    const auto keep_whole = [&] {
      push_whole(item, lightest);
      light.loaded(lightest);
    };
    const double whole_time = lightest < 0 ? std::numeric_limits<double>::infinity() : load(lightest) + costs_[i];
    if (task_.quick && lightest >= 0 && failures >= kFailures && whole_time > task_.worth) return false;
    if (lightest >= 0 && (whole_time <= limit || costs_[i] <= kTiny * mean_ || failures >= kFailures)) {
      keep_whole();
      continue;
    }
    const double by_cost = limit > 0 && std::isfinite(limit) ? std::ceil(costs_[i] / limit * (1 - 1e-9)) : 1;
    const int64_t by_tokens = (length + task_.capacity - 1) / task_.capacity;
    const int64_t members = std::min(std::max({static_cast<int64_t>(std::min(by_cost, 1e9)), by_tokens, i < cut ? least : 2, int64_t{2}}), ranks());
    Candidate ring = find_ring(item, members, limit);
    if (!ring.ranks.empty()) {   // with its transfers
      std::sort(ring.ranks.begin(), ring.ranks.end());
      const auto count = static_cast<int64_t>(ring.ranks.size());
      const double link = ring_link_s(item, ring.ranks), share = static_cast<double>(length) / static_cast<double>(count);
      for (int64_t rank : ring.ranks) ring.time = std::max(ring.time, time(rank, member_cost(item, count), share, link));
    }
    failures = ring.time <= limit ? 0 : failures + 1;
    if (ring.ranks.empty() && lightest < 0) return false;
    if (ring.time >= whole_time) {
      keep_whole();
      continue;
    }
    add_ring(item, std::move(ring.ranks));
    light.loaded(rings_.back().ranks);
  }
  return true;
}

bool BalanceState::place_whole(double worth) {
  LightestRanks light(*this);
  for (size_t i = 0; i < samples_.size(); ++i) {
    const int64_t rank = light.with_room(samples_[i].length);
    if (rank < 0 || load(rank) + costs_[i] >= worth) return false;
    push_whole(static_cast<uint32_t>(i), rank);
    light.loaded(rank);
  }
  return true;
}

void BalanceState::push_whole(uint32_t item, int64_t rank) {
  whole_[static_cast<size_t>(rank)].push_back(item);
  change(rank, costs_[item], samples_[item].length, 0);
}

}  // namespace ballast
