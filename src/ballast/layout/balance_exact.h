#pragma once
// The best division of a few sequences over a few ranks, by trying all. Internal to the balanced layout.
#include "ballast/layout/balance_state.h"

namespace ballast {

constexpr double kExactGoal = 1.002;   // times the mean: below it, divisions that cut are as good as each other but for the ranks that share

// Where all divisions of the state's sequences can be tried, and one takes less than `seconds`, or as long with fewer than `cut` members of rings in all:
// leaves the best of them in the state. False, and the state is what it was: there is none, or they are too many.
bool improve_exactly(BalanceState& state, double seconds, int64_t cut);

}  // namespace ballast
