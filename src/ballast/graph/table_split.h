#pragma once
// The token table's movements in two parts, where gathers run ahead. The embedding touches only its tokens' rows: they must arrive before its forward,
// and their sums can start only after its backward. The rest travels behind the blocks between; the bytes of both together are those of the whole.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/graph/shards.h"
#include "ballast/graph/subset.h"
#include "ballast/layout/layout.h"

namespace ballast {

// Ids that ranks have in the first and in the last micro-batch of a step, all ranks together, padding included. In any order.
struct StepTokens {
  std::vector<int64_t> first, last;
};

// `ids_of` gives the ids of a micro-batch, slot by slot.
StepTokens step_tokens(const Layout& layout, const std::function<std::vector<int64_t>(const MicroBatchLayout&)>& ids_of);

struct TableSplit {
  // Of the group's padded elements: whole blocks that hold a row of those tokens or another tensor, and all others.
  struct Parts {
    std::shared_ptr<const Subset> hot, cold;
  };
  std::optional<size_t> group;    // with the token table, where anything is split
  std::optional<Parts> refresh;   // by the first micro-batch
  std::optional<Parts> sums;      // by the last one: of a tied table, to which the head has contributed before
};
TableSplit split_table(const Recipe& recipe, const StepTokens& tokens);
// Whether tokens matter: some movement of the token table is split.
bool splits_table(const Recipe& recipe);
// What travels whole although it could be split elsewhere, and why.
std::vector<std::string> table_split_notes(const Recipe& recipe);

}  // namespace ballast
