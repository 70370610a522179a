#pragma once
// Lowers the attention of a micro-batch: tokens change from the layout of the linear modules to that of attention, cut sequences are attended
// together with the ranks that share them, whole ones in one call, and the result changes back. The backward is the same movements transposed.
//
// A cut sequence, by its CutRole: gather the queries of the team and the first keys, (shift them,) then step by step attend while the next keys are
// on their way, return partial results to their owners and merge them. In the backward keys and values go round again, and their gradients
// go round with them, one step behind.
#include <array>
#include <span>

#include "ballast/plan/cut_role.h"
#include "ballast/plan/shards.h"

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
  // Tensors of some members, one member after the other, and where the rows of each begin.
  struct Holding {
    std::vector<int64_t> members;
    std::vector<BufferId> tensors;
    int64_t base = 0;                  // row of the first member's first row
  };
  struct Pass;                         // one segment in one direction: pass-wide buffers and where operations go

  void attend_cut(Pass& pass, const CutPart& part);
  void attend_cut_backward(Pass& pass, const CutPart& part);
  void attend_heads(Pass& pass, const CutPart& part);
  void attend_heads_backward(Pass& pass, const CutPart& part);
  void attend_whole(Pass& pass);
  void attend_whole_backward(Pass& pass);

  // Movements; docstrings stand beside their definitions.
  Holding gather(Pass& pass, const CutPart& part, const std::vector<int64_t>& members, const std::vector<BufferId>& tensors, const char* name);
  Holding receive(Pass& pass, const CutPart& part, const Holding& mine, int64_t to, const std::vector<int64_t>& members, int64_t from, const char* name);
  std::vector<BufferId> parts_of(Pass& pass, const CutPart& part, const Holding& held, const char* name);
  Holding pass_on(Pass& pass, const CutPart& part, const CutRole& role, const Holding& mine, size_t step, const char* name);
  void pass_between_others(Pass& pass, const CutPart& part);
  void route(Pass& pass, const CutPart& part, size_t step, const Holding* mine, const Holding* arrived, DType dtype);
  void return_sums(Pass& pass, const CutPart& part, const Holding& sums, const std::vector<BufferId>& targets);
  Holding heads_of(Pass& pass, const CutPart& part, const std::vector<BufferId>& tensors);
  void tokens_of_heads(Pass& pass, const CutPart& part, const Holding& held, const std::vector<BufferId>& targets);
  std::vector<BufferId> change_layout(Pass& pass, const std::vector<BufferId>& tensors, bool to_attention);
  void exchange(Pass& pass, int level, std::vector<BufferId> from, std::vector<BufferId> to, std::vector<Transfer> sends, std::vector<Transfer> receives,
                int64_t together = 0);
  void sum_rows(Pass& pass, std::vector<BufferId> parts, int64_t count, int64_t begin, std::vector<BufferId> targets, int64_t row, int64_t rows);

  Op compute(const Pass& pass, std::string_view what) const;
  AttendUnit unit(const CutSequence& cut, const Holding& queries, const Holding& keys) const;
  std::vector<RowSpan> spans(const CutSequence& cut, const std::vector<int64_t>& members, int64_t row) const;
  void count_flops(Op& op, const Pass& pass) const;
  BufferId buffer(const Pass& pass, const std::string& name, DType dtype, int64_t rows, int64_t width, StateKind state = StateKind::Buffers);
  BufferId like(const Pass& pass, const std::string& name, BufferId other, int64_t rows, std::optional<DType> dtype = {});
  int64_t width(BufferId id) const;

  const Recipe& recipe_;
  int64_t rank_;
  StepGraph& graph_;
  const MicroBatchLayout& layout_;
  int32_t micro_batch_;
  int64_t cut_rows_ = 0;               // attention slots before the first that is of no cut sequence
  std::vector<AttendUnit> whole_;      // the sequences that this rank attends alone
  std::vector<Kept> layers_;
};

}  // namespace ballast
