#pragma once
// Attention work as data: which rows attend to which. Who sees whom follows from positions alone, so a packed sequence, a step of a ring and a
// whole gathered sequence are the same thing.
#include <cstdint>
#include <vector>

namespace ballast {

// Consecutive rows of a buffer that hold the tokens [position, position + count) of one sequence.
struct RowSpan {
  int64_t row = 0, count = 0, position = 0;
  bool operator==(const RowSpan&) const = default;
};

// Some queries of one sequence with some of its keys: a query at position i sees the keys at positions (i - window, i], all of [0, i] without a
// window. Spans of queries do not overlap, nor do spans of keys; any may be empty.
struct AttendUnit {
  std::vector<RowSpan> queries, keys;   // rows of the query and of the key buffer
  uint64_t sample = 0;               // the sequence: dropout draws by it and by positions
  bool operator==(const AttendUnit&) const = default;
};

// Pairs (query, key) that see each other. window 0: none. Exact to 2^53.
double visible_pairs(const AttendUnit& unit, int64_t window);
// The same of a whole sequence with itself.
double causal_pairs(int64_t length, int64_t window);

}  // namespace ballast
