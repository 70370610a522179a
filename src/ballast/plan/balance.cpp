#include "ballast/plan/balance.h"

#include <algorithm>
#include <limits>

#include "ballast/plan/balance_improve.h"
#include "ballast/plan/balance_state.h"

namespace ballast {

namespace {

// Whether a search has gone on long enough for this many sequences and ranks.
bool spent(const BalanceState& state) { return state.work() > 64 * (static_cast<int64_t>(state.items()) + state.ranks()) + 65536; }

// Places all; where tokens find no room, again with ever more of the longest cut, over few ranks or else over all.
bool fill(BalanceState& state, double limit) {
  for (const int64_t least : {int64_t{2}, state.ranks()}) {
    size_t more = 1;
    for (size_t cut = 0;; cut = std::min(cut + more, state.items()), more *= 4) {
      state.clear();
      if (state.place(limit, cut, least)) return true;
      if (state.task().quick) return false;
      if (cut == state.items() || (least == 2 && spent(state))) break;
    }
  }
  return false;
}

}  // namespace

std::optional<Balance> balance_longest_first(const BalanceTask& task, std::span<const SampleRef> samples) {
  BalanceTask whole = task;
  whole.members.clear();   // no rings
  BalanceState state(whole, samples);
  if (!state.place(std::numeric_limits<double>::infinity(), 0, 2)) return std::nullopt;
  return state.result();
}

std::optional<Balance> balance(const BalanceTask& task, std::span<const SampleRef> samples) {
  BalanceState state(task, samples);
  std::optional<Balance> best;
  const auto keep = [&](Balance&& other) {
    if (!best || other.seconds < best->seconds) best = std::move(other);
  };
  const auto improve_and_keep = [&] {
    const int64_t changes = improve(state);
    Balance filled = state.result();
    filled.improvements = changes;
    keep(std::move(filled));
  };
  // Cutting what does not stay below the mean is enough unless links are slow: then less.
  for (const double limit : {1.005, std::numeric_limits<double>::infinity(), 1.2, 2.0}) {
    if (best && (best->seconds <= 1.01 * best->mean || spent(state))) break;
    if (fill(state, limit * state.mean())) improve_and_keep();
    if (task.quick) break;
  }
  // Where tokens leave little choice, the longest over all ranks: that is even in tokens and cost.
  for (const double share : {0.5, 0.2, 0.05}) {
    if (task.quick || !best || best->seconds <= 1.02 * best->mean || task.members.empty()) break;
    size_t cut = 0;
    while (cut < state.items() && state.cost(cut) > share * state.mean()) ++cut;
    state.clear();
    if (state.place(1.005 * state.mean(), cut, state.ranks())) improve_and_keep();
  }
  if (best && best->seconds > best->mean * (1 + 1e-12)) {   // never worse than whole sequences, longest first
    if (auto whole = balance_longest_first(task, samples)) keep(std::move(*whole));
  }
  return best;
}

}  // namespace ballast
