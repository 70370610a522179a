#include "ballast/graph/table_split.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/check.h"

namespace ballast {

namespace {

struct Table {
  size_t group;
  const ParameterTensor* tensor;
};

std::optional<Table> table_of(const Recipe& recipe) {
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    for (const ParameterTensor& tensor : recipe.model.groups[g].tensors) {
      if (tensor.role == Role::TokenEmbedding && recipe.model.groups[g].trainable) return Table{g, &tensor};
    }
  }
  return std::nullopt;
}

enum class Answer : uint8_t { Split, NothingToSplit, Feedback, Stochastic, Secondary };

// Parts are encoded as the whole would be, block by block; what draws or remembers by place is not.
Answer of_hops(const std::vector<HopSpec>& hops) {
  for (const HopSpec& hop : hops) {
    if (hop.feedback) return Answer::Feedback;
    if (hop.codec.stochastic) return Answer::Stochastic;
  }
  return hops.empty() ? Answer::NothingToSplit : Answer::Split;
}

Answer answer_for_refresh(const Recipe& recipe, const GroupPlace& place) {
  const Answer answer = of_hops(gather_hops(recipe, place, Movement::Refresh));
  // The embedding's own gather would cut them, from rows that have not arrived.
  return answer == Answer::Split && place.secondary && place.row->secondary_forward ? Answer::Secondary : answer;
}

Answer answer_for_sums(const Recipe& recipe, const GroupPlace& place) {
  if (!recipe.model.config.tied_head) return Answer::NothingToSplit;   // all of the gradient is the embedding's
  std::vector<HopSpec> hops = reduce_hops(recipe, place);
  for (HopSpec& hop : reduce_on_hops(recipe, place)) hops.push_back(std::move(hop));
  return of_hops(hops);
}

TableSplit::Parts parts_of(const GroupPlace& place, const ParameterTensor& table, std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<Subset::Run> hot;
  const auto add = [&](int64_t begin, int64_t end) { hot.push_back({begin / place.unit * place.unit, (end + place.unit - 1) / place.unit * place.unit}); };
  for (const ParameterTensor& tensor : place.group->tensors) if (&tensor != &table) add(tensor.offset, tensor.offset + tensor.numel());
  const int64_t width = table.shape.back();
  for (const int64_t id : ids) {
    BALLAST_CHECK(id >= 0 && id < table.shape.front(), "token {} of {}", id, table.shape.front());
    add(table.offset + id * width, table.offset + (id + 1) * width);
  }
  TableSplit::Parts parts;
  parts.hot = std::make_shared<const Subset>(std::move(hot));
  parts.cold = std::make_shared<const Subset>(parts.hot->complement(place.padded));
  return parts;
}

}  // namespace

StepTokens step_tokens(const Layout& layout, const std::function<std::vector<int64_t>(const MicroBatchLayout&)>& ids_of) {
  StepTokens tokens;
  const auto take = [&](const MicroBatchLayout& batch, std::vector<int64_t>& ids) {
    const std::vector<int64_t> more = ids_of(batch);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  for (const auto& batches : layout.ranks) {
    if (batches.empty()) continue;
    take(batches.front(), tokens.first);
    if (batches.size() > 1) take(batches.back(), tokens.last);
  }
  if (layout.micro_batches() == 1) tokens.last = tokens.first;
  return tokens;
}

TableSplit split_table(const Recipe& recipe, const StepTokens& tokens) {
  TableSplit split;
  const std::optional<Table> table = table_of(recipe);
  if (!table || recipe.prefetch <= 1) return split;
  const GroupPlace place = place_group(recipe, table->group);
  if (answer_for_refresh(recipe, place) == Answer::Split) split.refresh = parts_of(place, *table->tensor, tokens.first);
  if (answer_for_sums(recipe, place) == Answer::Split) split.sums = parts_of(place, *table->tensor, tokens.last);
  if (split.refresh || split.sums) split.group = table->group;
  return split;
}

bool splits_table(const Recipe& recipe) { return split_table(recipe, {}).group.has_value(); }

std::vector<std::string> table_split_notes(const Recipe& recipe) {
  std::vector<std::string> notes;
  const std::optional<Table> table = table_of(recipe);
  if (!table) return notes;
  const GroupPlace place = place_group(recipe, table->group);
  const auto note = [&](const char* what, Answer answer) {
    if (answer == Answer::Split || answer == Answer::NothingToSplit) return;
    const char* why = answer == Answer::Feedback ? "error feedback is kept for all of it"
                      : answer == Answer::Stochastic ? "stochastic rounding draws by place"
                                                     : "its secondary weights, which serve forwards, are cut before the embedding";
    notes.push_back(fmt::format("the token table's {} whole and not in two parts, so nothing of it hides behind the blocks: {}", what, why));
  };
  note("refresh goes", answer_for_refresh(recipe, place));
  note("sums go", answer_for_sums(recipe, place));
  return notes;
}

}  // namespace ballast
