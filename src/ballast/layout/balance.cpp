#include "ballast/layout/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/layout/balance_exact.h"
#include "ballast/layout/balance_improve.h"
#include "ballast/layout/balance_state.h"

namespace ballast {

namespace {

// Least seconds of a division whose `cut` longest sequences are on all ranks: their transfers follow each other on every link.
double all_over_s(BalanceState& state, size_t cut) {
  const auto& legal = state.task().members;
  if (legal.empty() || legal.back() != state.ranks()) return 0;
  double seconds = 0;
  for (uint32_t item = 0; item < cut; ++item) seconds += state.ring_link_s(item, state.ranks(), state.task().topology.outermost());
  return seconds;
}

// Places all; where tokens find no room, again with ever more of the longest cut, over few ranks or else over all. Gives up where a division that takes
// `worth` seconds is known and more work or all ranks cannot pay.
bool fill(BalanceState& state, double limit, double worth) {
  for (const int64_t least : {int64_t{2}, state.ranks()}) {
    size_t more = 1;
    for (size_t cut = 0;; cut = std::min(cut + more, state.items()), more *= 4) {
      if (std::isfinite(worth) && cut > 0 && (state.spent() || (least > 2 && all_over_s(state, cut) >= worth))) return false;
      state.clear();
      if (state.place(limit, cut, least)) return true;
      if (state.task().quick) return false;
      if (cut == state.items() || (least == 2 && state.spent())) break;
    }
  }
  return false;
}

}  // namespace

std::optional<Balance> balance_longest_first(const BalanceTask& task, std::span<const SampleRef> samples) {
  BalanceState state(task, samples);
  return state.place_whole() ? std::optional(state.result()) : std::nullopt;
}

std::optional<Balance> balance(const BalanceTask& task, std::span<const SampleRef> samples) {
  BalanceState state(task, samples);
  std::optional<Balance> best;
  const auto keep = [&] {
    if (!best || state.seconds() < best->seconds) best = state.result();
  };
  const auto improve_and_keep = [&] {
    improve(state);
    keep();
  };
  const auto attempt = [&](double limit) {
    if (fill(state, limit, best ? best->seconds : std::numeric_limits<double>::infinity())) improve_and_keep();
  };
  attempt(1.005 * state.mean());
  if (!task.quick) {
    const auto far = [&] { return !best || (best->seconds > 1.01 * best->mean && !state.spent()); };
    if (far()) attempt(std::numeric_limits<double>::infinity());
    // Links or one long sequence hold the step up: cutting the others less costs nothing. The least time that a limit can keep, by halving.
    double low = state.mean();
    for (int halving = 0; halving < 6 && best && far(); ++halving) {
      const double high = best->seconds;
      if (high < 1.02 * low) break;
      const double limit = std::sqrt(low * high);
      attempt(limit);
      if (best->seconds >= high) low = limit;
    }
    if (best && best->seconds > 1.01 * best->mean && !best->rings.empty()) {   // as fast with fewer cuts?
      const double seconds = best->seconds;
      const size_t rings = best->rings.size();
      if (fill(state, 0.999 * seconds, seconds)) {
        improve(state, seconds / state.mean());
        Balance fewer = state.result();
        if (fewer.seconds <= seconds && fewer.rings.size() < rings) best = std::move(fewer);
      }
    }
  }
  // Where tokens leave little choice, the longest over all ranks: that is even in tokens and cost.
  for (const double share : {0.5, 0.2, 0.05}) {
    if (task.quick || !best || best->seconds <= 1.02 * best->mean || task.members.empty()) break;
    size_t cut = 0;
    while (cut < state.items() && state.cost(cut) > share * state.mean()) ++cut;
    if (state.spent() || all_over_s(state, cut) >= best->seconds) break;
    state.clear();
    if (state.place(1.005 * state.mean(), cut, state.ranks())) improve_and_keep();
  }
  if (best && best->seconds > best->mean * (1 + 1e-12)) {   // never worse than whole sequences, longest first
    state.clear();
    if (state.place_whole(best->seconds)) keep();
  }
  int64_t cut = 0;
  if (best) for (const Balance::Ring& ring : best->rings) cut += static_cast<int64_t>(ring.ranks.size());
  if (improve_exactly(state, best ? best->seconds : std::numeric_limits<double>::infinity(), cut)) best = state.result();
  return best;
}

}  // namespace ballast
