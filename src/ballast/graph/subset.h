#pragma once
// Some elements of a parameter group, as runs. A movement that carries only them packs them on the wire, in their order.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace ballast {

class Subset {
 public:
  struct Run {
    int64_t begin, end;   // elements [begin, end)
    bool operator==(const Run&) const = default;
  };
  // Runs in any order; those that touch or overlap become one.
  explicit Subset(std::vector<Run> runs);

  const std::vector<Run>& runs() const { return runs_; }
  // How many of the elements lie before `element`: where it stands among them.
  int64_t below(int64_t element) const;
  int64_t count(int64_t begin, int64_t end) const { return below(end) - below(begin); }
  // The element that stands at place `packed`.
  int64_t element_at(int64_t packed) const;
  // Those of [0, size) that are not in it.
  Subset complement(int64_t size) const;
  uint64_t fingerprint() const;

  // Calls each(first element, count) for what of the runs lies in [begin, end), in order.
  template <class Each>
  void visit(int64_t begin, int64_t end, Each&& each) const {
    auto run = std::upper_bound(runs_.begin(), runs_.end(), begin, [](int64_t element, const Run& one) { return element < one.end; });
    for (; run != runs_.end() && run->begin < end; ++run) {
      const int64_t first = std::max(begin, run->begin);
      each(first, std::min(end, run->end) - first);
    }
  }

 private:
  std::vector<Run> runs_;        // sorted, apart from each other
  std::vector<int64_t> before_;  // elements of all earlier runs; one more entry than runs
};

}  // namespace ballast
