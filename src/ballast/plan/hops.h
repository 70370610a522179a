#pragma once
// Writes the hops of one parameter group into a graph: gathers outer hop first, reductions inner hop first, each over one level.
#include "ballast/plan/shards.h"

namespace ballast {

class HopWriter {
 public:
  HopWriter(const Recipe& recipe, int64_t rank, StepGraph& graph, int64_t group);

  // Copies the rank's shard over `level` to its place in the full buffer `to`.
  void take_shard(const GroupPlace& place, int level, BufferId from, BufferId to);
  // Widens this rank's range of `buffer` from its shard over `outer` to that over `inner`; the buffer starts at element `base` of the group.
  void gather(const PlacementRow& row, Movement movement, int outer, int inner, BufferId buffer, DType dtype, int64_t base);
  void gather_plain(int outer, int inner, BufferId buffer, DType dtype, int64_t base);
  // Sums ranges of `source` over the levels (inner, outer], inner hop first, in place; the last hop writes to `result` unless that is kNoBuffer
  // (then in place too), adding to it if `accumulate`.
  void reduce(const PlacementRow& row, Movement movement, int inner, int outer, BufferId source, int64_t base, BufferId result, bool accumulate,
              int32_t micro_batch);
  // After a reduction over all levels up to `outer`: brings the sums back to every replica outside `inner`.
  void gather_sums(const PlacementRow& row, int outer, int inner, BufferId buffer, int64_t base);

 private:
  Op hop(int level, int64_t base) const;
  void gather_hop(int level, BufferId buffer, DType dtype, int64_t base, const CodecSpec& codec);
  BufferId wire(const CodecSpec& codec, int64_t bytes);
  void push(Op op);

  const Recipe& recipe_;
  int64_t rank_;
  StepGraph& graph_;
  int64_t group_;
  GroupPlace place_;
};

}  // namespace ballast
