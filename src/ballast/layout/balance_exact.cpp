// The best division of a few sequences over a few ranks, by trying all: branch and bound over every rank and every ring of every sequence.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ballast/layout/balance_exact.h"
#include "ballast/layout/balance_state.h"

namespace ballast {

namespace {

constexpr int64_t kMostTried = 100000;   // ranks of choices looked at; then the best so far is taken
constexpr double kMostDivisions = 6e6;   // more are not tried: 8 sequences with rings over 3 ranks, or whole over 7

struct Choice {
  std::vector<int64_t> ranks, tokens;   // growing; what each holds
  double cost = 0, link_s = 0;          // of each
  int64_t cut() const { return ranks.size() > 1 ? static_cast<int64_t>(ranks.size()) : 0; }
};

class Search {
 public:
  Search(const BalanceTask& task, BalanceState& state, double goal) : task_(task), state_(state), floor_(goal * state.mean()) {
    const auto ranks = static_cast<size_t>(state.ranks());
    load_.resize(ranks), link_s_.resize(ranks), tokens_.resize(ranks);
    for (uint32_t item = 0; item < state.items(); ++item) choices_.push_back(choices_of(item));
    // What each choice loads on all ranks together is at least the least of its item's.
    rest_.assign(choices_.size() + 1, 0.0);
    for (size_t i = choices_.size(); i-- > 0;) {
      double least = std::numeric_limits<double>::infinity();
      for (const Choice& one : choices_[i]) least = std::min(least, one.cost * static_cast<double>(one.ranks.size()));
      rest_[i] = rest_[i + 1] + least;
    }
    taken_.resize(choices_.size());
  }

  // Better than this; false: there is none.
  bool run(double seconds, int64_t cut) {
    best_ = std::max(seconds, floor_), best_cut_ = cut;
    go(0, 0.0, 0.0, 0);
    if (found_.empty()) return false;
    state_.clear();
    for (uint32_t item = 0; item < choices_.size(); ++item) {
      const Choice& choice = choices_[item][found_[item]];
      if (choice.ranks.size() == 1) state_.add_whole(item, choice.ranks.front());
      else state_.add_ring(item, choice.ranks);
    }
    return true;
  }

 private:
  std::vector<Choice> choices_of(uint32_t item) const {
    std::vector<Choice> choices;
    for (uint32_t set = 1; set < uint32_t{1} << state_.ranks(); ++set) {
      Choice choice;
      for (int64_t rank = 0; rank < state_.ranks(); ++rank) if ((set >> rank & 1) != 0) choice.ranks.push_back(rank);
      const auto members = static_cast<int64_t>(choice.ranks.size());
      if (members > 1 && !std::binary_search(task_.members.begin(), task_.members.end(), members)) continue;
      for (int64_t member = 0; member < members; ++member) {
        const auto [first, second] = zigzag_chunks(state_.length(item), members, member);
        choice.tokens.push_back(first.length + second.length);
      }
      choice.cost = state_.member_cost(item, members);
      choice.link_s = members > 1 ? state_.ring_link_s(item, choice.ranks) : 0;
      choices.push_back(std::move(choice));
    }
    std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) { return a.cut() < b.cut(); });
    return choices;
  }

  bool better(double seconds, int64_t cut) const { return seconds < best_ * (1 - 1e-12) || (seconds <= best_ && cut < best_cut_); }

  void go(size_t item, double slowest, double all, int64_t cut) {
    if (!better(std::max({slowest, floor_, (all + rest_[item]) / static_cast<double>(load_.size())}), cut)) return;
    if (item == choices_.size()) {
      best_ = std::max(slowest, floor_), best_cut_ = cut, found_ = taken_;
      return;
    }
    for (size_t c = 0; c < choices_[item].size() && tried_ < kMostTried; ++c) {
      const Choice& choice = choices_[item][c];
      tried_ += static_cast<int64_t>(choice.ranks.size());
      double time = slowest;
      bool fits = true;
      for (size_t i = 0; i < choice.ranks.size(); ++i) {
        const auto r = static_cast<size_t>(choice.ranks[i]);
        fits &= tokens_[r] + choice.tokens[i] <= task_.capacity;
        time = std::max({time, load_[r] + choice.cost, task_.token_s * static_cast<double>(tokens_[r] + choice.tokens[i]) + link_s_[r] + choice.link_s});
      }
      if (!fits || !better(std::max(time, floor_), cut + choice.cut())) continue;
      taken_[item] = c;
      change(choice, 1);
      go(item + 1, time, all + choice.cost * static_cast<double>(choice.ranks.size()), cut + choice.cut());
      change(choice, -1);
    }
  }

  void change(const Choice& choice, int sign) {
    for (size_t i = 0; i < choice.ranks.size(); ++i) {
      const auto r = static_cast<size_t>(choice.ranks[i]);
      load_[r] += sign * choice.cost;
      link_s_[r] += sign * choice.link_s;
      tokens_[r] += sign * choice.tokens[i];
    }
  }

  const BalanceTask& task_;
  BalanceState& state_;
  double floor_;   // below it all are equal
  std::vector<std::vector<Choice>> choices_;
  std::vector<double> rest_, load_, link_s_;
  std::vector<int64_t> tokens_;
  std::vector<size_t> taken_, found_;
  double best_ = 0;
  int64_t best_cut_ = 0;
  int64_t tried_ = 0;
};

}  // namespace

bool improve_exactly(BalanceState& state, double seconds, int64_t cut) {
  const BalanceTask& task = state.task();
  if (state.ranks() > 16 || state.items() == 0) return false;
  double choices = static_cast<double>(state.ranks());
  for (int64_t members : task.members) {
    double rings = 1;
    for (int64_t i = 0; i < members; ++i) rings *= static_cast<double>(state.ranks() - i) / static_cast<double>(i + 1);
    choices += rings;
  }
  if (std::pow(choices, static_cast<double>(state.items())) > kMostDivisions) return false;
  return Search(task, state, task.members.empty() ? 1 : kExactGoal).run(seconds, cut);
}

}  // namespace ballast
