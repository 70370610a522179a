#pragma once
// The exchanges of rows that the attention of cut sequences needs: gathering what members of a group hold, hops of a ring, partial results and sums
// back to their owners, heads for tokens, and the change between the two layouts of a micro-batch. One object writes one segment in one direction.
#include <optional>
#include <string>

#include "ballast/graph/shards.h"
#include "ballast/layout/cut_role.h"

namespace ballast {

// Tokens that one member, or some together, hold of a cut sequence.
int64_t rows_of(const CutSequence& cut, int64_t member);
int64_t rows_of(const CutSequence& cut, const std::vector<int64_t>& members);

// Tensors of some members, one member after the other, from row `base` on.
struct Holding {
  std::vector<int64_t> members;
  std::vector<BufferId> tensors;
  int64_t base = 0;
};

class RowMoves {
 public:
  // Appends to `ops`, adds buffers to `graph`. `segment` indexes ModelShape::segments.
  RowMoves(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch, int64_t segment, bool backward, std::vector<Op>& ops);

  // What operations are about from here on; none: all tokens.
  void begin(const CutSequence* cut);

  // The members' rows of the given tensors together; this member's own rows where they are if it is the only one.
  Holding gather(const CutPart& part, const std::vector<int64_t>& members, const std::vector<BufferId>& tensors, const char* name);
  // Gives what is held to one member and takes what another one holds, of `members`. Nobody (-1): keeps what it has.
  Holding receive(const CutPart& part, const Holding& mine, int64_t to, const std::vector<int64_t>& members, int64_t from, const char* name);
  // One hop of the ring: gives what is held to the next member and takes the holding of step `step` (modulo the ring) from the one before.
  Holding pass_on(const CutPart& part, const CutRole& role, const Holding& mine, size_t step, const char* name);
  // A rank that is no member but whose link is used: the same hops in the same order as the members'.
  void pass_between_others(const CutPart& part);
  // Rows that members of a group hold for each other go to their owners: this member's, as all of them have them, one part after the other.
  std::vector<BufferId> parts_of(const CutPart& part, const Holding& held, const char* name);
  // The same, summed into this member's rows of the targets.
  void return_sums(const CutPart& part, const Holding& sums, const std::vector<BufferId>& targets);
  // This member's heads of all tokens, from all members; and back, this member's tokens of all heads into its rows of the targets.
  Holding heads_of(const CutPart& part, const std::vector<BufferId>& tensors);
  void tokens_of_heads(const CutPart& part, const Holding& held, const std::vector<BufferId>& targets);
  // From the slots of `pieces` to those of attention, or back; the tensors themselves where the two are the same.
  std::vector<BufferId> change_layout(const std::vector<BufferId>& tensors, bool to_attention);

  Op op(std::string_view what) const;   // of this segment and, if any, this cut sequence
  void push(Op op) { ops_.push_back(std::move(op)); }
  bool backward() const { return backward_; }
  BufferId buffer(const std::string& name, DType dtype, int64_t rows, int64_t width, StateKind state = StateKind::Buffers);
  BufferId like(const std::string& name, BufferId other, int64_t rows, std::optional<DType> dtype = {});
  int64_t width(BufferId id) const;

 private:
  void route(const CutPart& part, size_t step, const Holding* mine, const Holding* arrived, DType dtype);
  void exchange(int level, std::vector<BufferId> from, std::vector<BufferId> to, std::vector<Transfer> sends, std::vector<Transfer> receives, int64_t together = 0);
  DType dtype(BufferId id) const;

  const Recipe& recipe_;
  int64_t rank_;
  StepGraph& graph_;
  const MicroBatchLayout& layout_;
  int32_t micro_batch_;
  int64_t segment_;
  bool backward_;
  std::vector<Op>& ops_;
  const CutSequence* cut_ = nullptr;
  int64_t exchanges_ = 0;              // about it so far, counted alike by all ranks: also those that a member leaves out
};

}  // namespace ballast
