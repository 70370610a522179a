#pragma once
// The pass after the greedy division: makes the most loaded rank lighter as long as that is possible. Internal to the balanced layout.
#include "ballast/layout/balance_state.h"

namespace ballast {

// Moves and swaps of whole sequences with the least loaded ranks, cuts of whole sequences over lighter ranks, larger rings; until the most loaded
// rank is within `goal` of the mean, nothing helps, or a number of changes in proportion to the ranks is used up. Returns the changes made.
int64_t improve(BalanceState& state, double goal = 1.002);

}  // namespace ballast
