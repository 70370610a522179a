#pragma once
// Lowers the attention of a micro-batch: tokens change from the layout of the linear modules to that of attention, cut sequences are attended
// together with the ranks that share them, whole ones in one call, and the result changes back. The backward is the same movements transposed.
//
// A cut sequence, by its CutRole: gather the queries of the team and the first keys, (shift them,) then step by step attend while the next keys are
// on their way, return partial results to their owners and merge them. In the backward keys and values go round again, and their gradients
// go round with them, one step behind.
#include <array>
#include <span>

#include "ballast/graph/row_moves.h"

namespace ballast {

class AttentionOps {
 public:
  // Adds its buffers to `graph`. `micro_batch` is the index that the operations carry.
  AttentionOps(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch);

  // `s` indexes ModelShape::segments. q, k, v, o and their gradients have a row for each slot of `pieces`. Operations are appended to `ops`.
  BufferId forward(int64_t s, const std::array<BufferId, 3>& qkv, std::vector<Op>& ops);             // returns o
  std::array<BufferId, 3> backward(int64_t s, BufferId d_o, std::vector<Op>& ops);                   // returns the gradients of q, k, v

 private:
  struct Kept {  // between forward and backward, a row for each attention slot
    std::array<BufferId, 3> qkv{kNoBuffer, kNoBuffer, kNoBuffer};
    BufferId o = kNoBuffer, lse = kNoBuffer;
  };
  struct Pass;                         // one segment in one direction

  void attend(Pass& pass);
  void attend_cut(Pass& pass, const CutPart& part);
  void attend_cut_backward(Pass& pass, const CutPart& part);
  void attend_heads(Pass& pass, const CutPart& part);
  void attend_heads_backward(Pass& pass, const CutPart& part);
  // Where cut sequences are summed for an output: a buffer in fp32, or the output if it is fp32 or nothing is cut.
  BufferId sums_of(Pass& pass, const char* name, BufferId output);
  AttendUnit unit(const CutSequence& cut, const Holding& queries, const Holding& keys) const;
  std::vector<RowSpan> spans(const CutSequence& cut, const std::vector<int64_t>& members, int64_t row) const;
  void count_flops(Op& op, const Pass& pass) const;

  const Recipe& recipe_;
  int64_t rank_;
  StepGraph& graph_;
  const MicroBatchLayout& layout_;
  int32_t micro_batch_;
  int64_t cut_rows_;                   // attention slots before the first that is of no cut sequence
  std::vector<AttendUnit> whole_;      // the sequences that this rank attends alone
  std::vector<Kept> layers_;
};

}  // namespace ballast
