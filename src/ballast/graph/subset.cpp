#include "ballast/graph/subset.h"

#include "ballast/base/check.h"

namespace ballast {

Subset::Subset(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  for (const Run& run : runs) {
    BALLAST_CHECK(run.begin >= 0 && run.begin <= run.end, "a run [{}, {})", run.begin, run.end);
    if (run.begin == run.end) continue;
    if (!runs_.empty() && run.begin <= runs_.back().end) {
      runs_.back().end = std::max(runs_.back().end, run.end);
    } else {
      runs_.push_back(run);
    }
  }
  before_.push_back(0);
  for (const Run& run : runs_) before_.push_back(before_.back() + run.end - run.begin);
}

int64_t Subset::below(int64_t element) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), element, [](int64_t at, const Run& one) { return at < one.end; });
  const int64_t inside = run == runs_.end() ? 0 : std::max<int64_t>(0, element - run->begin);
  return before_[static_cast<size_t>(run - runs_.begin())] + inside;
}

int64_t Subset::element_at(int64_t packed) const {
  BALLAST_CHECK(packed >= 0 && packed < before_.back(), "place {} of {}", packed, before_.back());
  const auto run = static_cast<size_t>(std::upper_bound(before_.begin(), before_.end(), packed) - before_.begin()) - 1;
  return runs_[run].begin + packed - before_[run];
}

Subset Subset::complement(int64_t size) const {
  std::vector<Run> others;
  int64_t done = 0;
  for (const Run& run : runs_) {
    others.push_back({done, run.begin});
    done = run.end;
  }
  BALLAST_CHECK(done <= size, "elements up to {} of {}", done, size);
  others.push_back({done, size});
  return Subset(std::move(others));
}

uint64_t Subset::fingerprint() const {
  uint64_t hash = 1469598103934665603ull;
  for (const Run& run : runs_) {
    for (const int64_t bound : {run.begin, run.end}) hash = (hash ^ static_cast<uint64_t>(bound)) * 1099511628211ull;
  }
  return hash;
}

}  // namespace ballast
