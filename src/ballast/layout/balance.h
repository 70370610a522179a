#pragma once
// Divides one micro-batch's sequences over ranks by cost: which stay whole and where, which are cut over which ranks. Greedy over the levels of the
// topology with a threshold that falls where tokens overflow (arXiv 2509.21841), then improved rank by rank. Internal to the balanced layout.
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "ballast/layout/parts.h"

namespace ballast {

struct BalanceTask {
  const LayoutLimits& limits;
  const Topology& topology;
  int64_t capacity = 0;            // attention slots of a rank
  double token_s = 0;              // what a token costs beside attention; 0: that part is even by a remap
  std::vector<int64_t> members;    // ring sizes that may be, growing, all >= 2
  bool quick = false;              // gives up where the first attempt finds no room or
  double worth = std::numeric_limits<double>::infinity();   // a rank would need more seconds than this
};

struct Balance {
  struct Ring {
    size_t sample;
    std::vector<int64_t> ranks;   // growing
  };
  std::vector<Ring> rings;             // longest sequence first
  std::vector<WholeSequence> whole;    // longest first
  std::vector<double> load;            // by rank: predicted seconds of compute
  double seconds = 0;                  // of the slowest rank, its links included
  double mean = 0;                     // of the load: no division is faster
};

// `samples`: longest first. None if they do not fit.
std::optional<Balance> balance(const BalanceTask& task, std::span<const SampleRef> samples);

// Whole sequences, longest first, each to the rank with the least sum of costs that has room for it. None if they do not fit.
std::optional<Balance> balance_longest_first(const BalanceTask& task, std::span<const SampleRef> samples);

}  // namespace ballast
