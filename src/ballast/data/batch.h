#pragma once
// A micro-batch's layout and the stored tokens -> flat arrays. Plain vectors: the engine wraps them as tensors (model/segments.h).
#include <cstdint>
#include <functional>
#include <vector>

#include "ballast/data/source.h"
#include "ballast/layout/layout.h"

namespace ballast {

struct BatchArrays {
  // [slots] each. Piece after piece, its padding behind it: id = end-of-text, target = -1, positions going on.
  std::vector<int64_t> ids, positions, targets;   // targets: -1 = not trained
  std::vector<int64_t> starts;                    // [pieces + 1]; piece p owns the slots [starts[p], starts[p + 1])
  std::vector<uint64_t> sample_keys;              // [pieces]
  int64_t trained = 0;                            // targets that are not -1
};

// Positions count from the sample's first token: a window of a long record starts at 0, a later piece of a sample at its begin.
BatchArrays assemble(const MicroBatchLayout& layout, const DataSet& data);
// The same from any tokens: `read` gives ids and targets of inputs [begin, begin + length) of a sample, as DataSet::read.
using TokenReader = std::function<void(uint64_t sample, int64_t begin, int64_t length, int64_t* ids, int64_t* targets)>;
BatchArrays assemble(const MicroBatchLayout& layout, const TokenReader& read, int64_t padding_id);

}  // namespace ballast
