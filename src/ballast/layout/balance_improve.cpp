#include "ballast/layout/balance_improve.h"

#include <algorithm>
#include <set>

namespace ballast {

namespace {

constexpr double kGain = 1e-3;     // a change that lowers a rank by less than this part is not worth a cut
constexpr double kWider = 5e-3;    // nor is a wider ring for less than this
constexpr size_t kPartners = 4;    // least loaded ranks to try moves and swaps with
constexpr size_t kWidest = 16;     // members that a pass adds to a cut at once
constexpr int64_t kWork = 64;      // ranks and items that it touches, per rank and item of the division

class Improver {
 public:
  explicit Improver(BalanceState& state) : state_(state) {
    for (int64_t rank = 0; rank < state.ranks(); ++rank) order_.emplace(state.time(rank), rank);
  }

  int64_t run(double goal) {
    const int64_t most = 4 * state_.ranks() + 64;
    const int64_t work = state_.work() + kWork * (state_.ranks() + static_cast<int64_t>(state_.items()));
    int64_t changes = 0;
    while (changes < most && state_.work() < work) {
      const auto [time, rank] = *std::prev(order_.end());
      if (time <= goal * state_.mean()) break;
      if (!exchange(rank, kGain) && !cut(rank) && !grow(rank) && !exchange(rank, 1e-9)) break;
      ++changes;
    }
    return changes;
  }

 private:
  template <class Change>
  void update(std::span<const int64_t> ranks, Change&& change) {
    for (int64_t rank : ranks) order_.erase({state_.time(rank), rank});
    change();
    for (int64_t rank : ranks) order_.emplace(state_.time(rank), rank);
  }

  // A move or a swap with one of the least loaded ranks, whichever leaves the larger of both loads smallest.
  bool exchange(int64_t rank, double gain) {
    struct Best {
      double load;
      int64_t partner = -1;
      int64_t out = -1, in = -1;
    } best{state_.load(rank) * (1 - gain)};
    size_t tried = 0;
    for (auto it = order_.begin(); it != order_.end() && tried < kPartners; ++it, ++tried) {
      const int64_t partner = it->second;
      const double difference = state_.load(rank) - state_.load(partner);
      if (difference <= 0) continue;
      const auto& mine = state_.whole(rank);
      const auto& theirs = state_.whole(partner);
      state_.add_work(static_cast<int64_t>(mine.size() + theirs.size()));
      const auto consider = [&](int64_t out, int64_t in) {
        const double moved = state_.cost(static_cast<size_t>(out)) - (in < 0 ? 0 : state_.cost(static_cast<size_t>(in)));
        if (moved <= 0 || moved >= difference) return;
        const double load = std::max(state_.load(rank) - moved, state_.load(partner) + moved);
        if (load >= best.load) return;
        const int64_t tokens = state_.length(static_cast<size_t>(out)) - (in < 0 ? 0 : state_.length(static_cast<size_t>(in)));
        if (tokens > state_.room(partner) || -tokens > state_.room(rank)) return;
        best = {load, partner, out, in};
      };
      // Costs fall along both lists. For every item out, the item in whose difference is nearest to half.
      size_t j = 0;
      for (uint32_t out : mine) {
        consider(out, -1);
        const double wanted = state_.cost(out) - difference / 2;
        while (j < theirs.size() && state_.cost(theirs[j]) > wanted) ++j;
        if (j > 0) consider(out, theirs[j - 1]);
        if (j < theirs.size()) consider(out, theirs[j]);
      }
    }
    if (best.partner < 0 || state_.time(rank) > state_.load(rank)) return false;
    const int64_t ranks[] = {rank, best.partner};
    update(ranks, [&] {
      state_.remove_whole(static_cast<uint32_t>(best.out), rank);
      if (best.in >= 0) state_.remove_whole(static_cast<uint32_t>(best.in), best.partner);
      state_.add_whole(static_cast<uint32_t>(best.out), best.partner);
      if (best.in >= 0) state_.add_whole(static_cast<uint32_t>(best.in), rank);
    });
    return true;
  }

  // The lightest ranks of a unit without those of `without` (growing), lightest first.
  std::vector<int64_t> lightest(int64_t begin, int64_t size, std::span<const int64_t> without) const {
    std::vector<int64_t> ranks;
    ranks.reserve(static_cast<size_t>(size));
    state_.add_work(size);
    for (int64_t rank = begin; rank < begin + size; ++rank) {
      if (!std::binary_search(without.begin(), without.end(), rank)) ranks.push_back(rank);
    }
    const size_t count = std::min(ranks.size(), kWidest);
    std::partial_sort(ranks.begin(), ranks.begin() + static_cast<int64_t>(count), ranks.end(), [&](int64_t a, int64_t b) {
      const double left = state_.time(a), right = state_.time(b);
      return left != right ? left < right : a < b;
    });
    ranks.resize(count);
    return ranks;
  }

  // Units that an addition to a ring around `rank` may come from: its own at level 0, then the lightest child beside it at every level above.
  template <class Try>
  void each_unit(int64_t rank, Try&& attempt) {
    const Topology& topology = state_.task().topology;
    for (int level = 0; level < topology.level_count(); ++level) {
      const int64_t size = topology.group_size(level), begin = rank / size * size, below = level == 0 ? size : topology.group_size(level - 1);
      int64_t unit = begin;
      if (level > 0) {
        double least = 1e300;
        for (int64_t child = begin; child < begin + size; child += below) {
          const double load = state_.unit_load(level - 1, child / below);
          if (child != rank / below * below && load < least) least = load, unit = child;
        }
        if (least == 1e300) continue;
      }
      if (attempt(unit, below)) return;
    }
  }

  struct BestRing {
    double time;
    std::vector<int64_t> ranks;
  };

  // Rings of `fixed` (growing) and ever more of `others`; `freed`: what each of the fixed ones, which hold the item now, gives up first.
  void widen(uint32_t item, std::span<const int64_t> fixed, std::span<const int64_t> others, double freed, double freed_link, BestRing& best) {
    const int64_t length = state_.length(item);
    const double freed_tokens = static_cast<double>(length) / static_cast<double>(fixed.size());
    const auto held = [&](size_t i) {
      const auto [first, second] = zigzag_chunks(length, static_cast<int64_t>(fixed.size()), static_cast<int64_t>(i));
      return first.length + second.length;
    };
    const auto& legal = state_.task().members;
    std::vector<int64_t> ranks(fixed.begin(), fixed.end());
    for (int64_t other : others) {
      ranks.push_back(other);
      const auto members = static_cast<int64_t>(ranks.size());
      if (!std::binary_search(legal.begin(), legal.end(), members)) continue;
      state_.add_work(members);
      std::vector<int64_t> sorted = ranks;
      std::sort(sorted.begin(), sorted.end());
      const double cost = state_.member_cost(item, members), link = state_.ring_link_s(item, sorted);
      const int64_t part = largest_part(length, members);
      double time = 0;
      bool fits = true;
      for (size_t i = 0; i < ranks.size(); ++i) {
        const bool old = i < fixed.size();
        const double share = static_cast<double>(length) / static_cast<double>(members);
        time = std::max(time, state_.time(ranks[i], cost - (old ? freed : 0), share - (old ? freed_tokens : 0), link - (old ? freed_link : 0)));
        fits &= part <= state_.room(ranks[i]) + (old ? held(i) : 0);
      }
      if (fits && time < best.time * (best.ranks.empty() ? 1 : 1 - kWider)) best = {time, std::move(sorted)};
    }
  }

  // Cuts the longest whole sequence of the rank over it and lighter ones, as near as they are light enough.
  bool cut(int64_t rank) {
    if (state_.whole(rank).empty() || state_.task().members.empty()) return false;
    const uint32_t item = state_.whole(rank).front();
    BestRing best{state_.time(rank) * (1 - kGain), {}};
    const int64_t fixed[] = {rank};
    each_unit(rank, [&](int64_t unit, int64_t size) {
      widen(item, fixed, lightest(unit, size, fixed), state_.cost(item), 0, best);
      return best.time <= 1.01 * state_.mean();
    });
    if (best.ranks.empty()) return false;
    update(best.ranks, [&] {
      state_.remove_whole(item, rank);
      state_.add_ring(item, best.ranks);
    });
    return true;
  }

  // Adds lighter ranks to the most expensive ring of the rank.
  bool grow(int64_t rank) {
    size_t found = state_.rings().size();
    state_.add_work(static_cast<int64_t>(found));
    for (size_t i = 0; i < state_.rings().size(); ++i) {
      const BalanceState::Ring& ring = state_.rings()[i];
      if (!std::binary_search(ring.ranks.begin(), ring.ranks.end(), rank)) continue;
      if (found == state_.rings().size() || ring.cost > state_.rings()[found].cost) found = i;
    }
    if (found == state_.rings().size()) return false;
    const BalanceState::Ring& ring = state_.rings()[found];
    if (ring.ranks.size() > 4 * kWidest) return false;
    BestRing best{state_.time(rank) * (1 - kGain), {}};
    each_unit(rank, [&](int64_t unit, int64_t size) {
      widen(ring.item, ring.ranks, lightest(unit, size, ring.ranks), ring.cost, ring.link_s, best);
      return best.time <= 1.01 * state_.mean();
    });
    if (best.ranks.empty()) return false;
    const uint32_t item = ring.item;
    update(best.ranks, [&] {
      state_.take_ring(found);
      state_.add_ring(item, best.ranks);
    });
    return true;
  }

  BalanceState& state_;
  std::set<std::pair<double, int64_t>> order_;   // time, rank
};

}  // namespace

int64_t improve(BalanceState& state, double goal) { return state.ranks() < 2 ? 0 : Improver(state).run(goal); }

}  // namespace ballast
