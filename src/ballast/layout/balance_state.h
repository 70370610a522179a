#pragma once
// The division of a micro-batch under construction: loads by rank and unit, whole sequences and rings, and the elementary changes. Internal.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ballast/layout/balance.h"
#include "ballast/layout/sharing_cost.h"

namespace ballast {

class BalanceState {
 public:
  struct Ring {
    uint32_t item;
    int level;
    double cost, link_s;   // of each member
    std::vector<int64_t> ranks;
  };
  BalanceState(const BalanceTask& task, std::span<const SampleRef> samples);

  void clear();
  // Every item in turn: whole on the least loaded rank with room where that stays below `limit` seconds, else as a ring on as few and as near ranks
  // as stay below it, or whatever comes nearest. The first `cut` items are cut in any case, over at least `least` ranks.
  bool place(double limit, size_t cut, int64_t least);
  // Every item whole on the least loaded rank that has room for it. Gives up where a rank would need `worth` seconds.
  bool place_whole(double worth = std::numeric_limits<double>::infinity());

  double cost(size_t item) const { return costs_[item]; }
  double member_cost(size_t item, int64_t members) const;
  double mean() const { return mean_; }
  size_t items() const { return samples_.size(); }
  int64_t length(size_t item) const { return samples_[item].length; }
  int64_t ranks() const { return static_cast<int64_t>(load_.size()); }
  double load(int64_t rank) const { return load_[static_cast<size_t>(rank)]; }
  // Seconds of a rank that takes this much more on: a sequence's transfers hide behind attention only, as the linear modules of a layer wait for it.
  double time(int64_t rank, double more_load = 0, double more_tokens = 0, double more_link_s = 0) const {
    const auto r = static_cast<size_t>(rank);
    const double linear = task_.token_s * (static_cast<double>(tokens_[r]) + more_tokens);
    return std::max(load_[r] + more_load, linear + link_s_[r] + more_link_s);
  }
  double link_s(int64_t rank) const { return link_s_[static_cast<size_t>(rank)]; }
  double unit_load(int level, int64_t unit) const { return unit_load_[static_cast<size_t>(level)][static_cast<size_t>(unit)]; }
  int64_t room(int64_t rank) const { return task_.capacity - tokens_[static_cast<size_t>(rank)]; }
  const std::vector<uint32_t>& whole(int64_t rank) const { return whole_[static_cast<size_t>(rank)]; }
  const std::vector<Ring>& rings() const { return rings_; }
  const BalanceTask& task() const { return task_; }
  // Ranks and items touched so far bound a search, so that it ends at the same place everywhere.
  int64_t work() const { return work_; }
  void add_work(int64_t touched) { work_ += touched; }
  bool spent() const { return work_ > kWorkOfEach * (static_cast<int64_t>(items()) + ranks()) + kWork; }

  void add_whole(uint32_t item, int64_t rank);
  void remove_whole(uint32_t item, int64_t rank);
  // Members in growing order. A ring costs all members the same.
  void add_ring(uint32_t item, std::vector<int64_t> ranks);
  Ring take_ring(size_t index);   // the last ring takes its place
  double ring_link_s(uint32_t item, std::span<const int64_t> ranks);
  double ring_link_s(uint32_t item, int64_t members, int level);   // of any ring of so many members that spans a unit of the level

  double seconds() const;   // of the slowest rank
  Balance result() const;

 private:
  static constexpr int64_t kWorkOfEach = 16, kWork = 65536;
  void push_whole(uint32_t item, int64_t rank);   // behind all longer ones
  void change(int64_t rank, double load, int64_t tokens, double link_s);
  int64_t parts(uint32_t item) const;
  struct Candidate {
    double time = std::numeric_limits<double>::infinity();
    std::vector<int64_t> ranks;
  };
  // The best ring for an item in a unit of `level`, for the first size that stays below the limit.
  void try_unit(uint32_t item, int64_t members, double limit, int level, int64_t unit, Candidate& best);
  void try_ranks(uint32_t item, int64_t members, double limit, int level, std::vector<int64_t>& ranks, Candidate& best);
  Candidate find_ring(uint32_t item, int64_t members, double limit);

  const BalanceTask& task_;
  std::span<const SampleRef> samples_;
  std::vector<double> costs_;
  double mean_ = 0;
  int64_t work_ = 0;
  std::vector<double> load_, link_s_;
  std::vector<int64_t> tokens_;
  std::vector<int64_t> sizes_;                   // by level: ranks of a unit
  std::vector<std::vector<double>> unit_load_;   // by level and unit
  std::vector<std::vector<uint32_t>> whole_;     // by rank, growing: longest first
  std::vector<Ring> rings_;
  CutSequence shape_;                            // scratch: a ring's members and level
};

}  // namespace ballast
