#pragma once
// Which tokens of which sample are where in each phase of a step. Pure, the same on every rank.
#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

// A sample that a step trains: an index into the data source's order and its number of input tokens.
struct SampleRef {
  uint64_t sample;   // identity within the data set: stable across world sizes and resumes
  int64_t length;    // input tokens, >= 1
};

// A run of consecutive input tokens [begin, begin + length) of a sample.
struct Piece {
  uint64_t sample;
  int64_t begin;
  int64_t length;
  int64_t padding = 0;   // slots after it that hold nothing and train nothing (padded layouts)
};

struct MicroBatchLayout {
  std::vector<Piece> pieces;
  int64_t tokens() const;   // real tokens
  int64_t slots() const;    // with padding
};

// All ranks have the same number of micro-batches; an empty one is legal.
struct Layout {
  std::string name;                                         // "packed", "padded"
  std::vector<std::vector<MicroBatchLayout>> ranks;         // [rank][micro-batch]
  int64_t micro_batches() const { return ranks.empty() ? 0 : static_cast<int64_t>(ranks.front().size()); }
  int64_t tokens() const;
  int64_t slots() const;
  double imbalance() const;   // max over ranks of slots / mean
  uint64_t fingerprint() const;
};

}  // namespace ballast
