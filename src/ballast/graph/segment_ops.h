#pragma once
// Turns the segments of one micro-batch into compute operations over activation buffers.
#include <array>

#include "ballast/graph/attention_ops.h"
#include "ballast/graph/shards.h"
#include "ballast/layout/layout.h"

namespace ballast {

class SegmentOps {
 public:
  // Adds its buffers to `graph`. `micro_batch` is the index that the operations carry.
  SegmentOps(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch);

  // `s` indexes ModelShape::segments. To be called in order: forwards up, head, then recomputes and backwards down. Attention is several operations.
  std::vector<Op> forward(int64_t s);
  Op head_train(int64_t s);   // outputs: gradient of x, token losses
  Op head_loss(int64_t s);    // outputs: token losses
  Op recompute(int64_t s);
  std::vector<Op> backward(int64_t s);
  bool recomputes(const Segment& segment) const;
  int64_t scratch(const Segment& segment, const Op& op) const;   // bytes

 private:
  struct Block {
    BufferId x = kNoBuffer;                    // input of the block
    std::array<BufferId, 3> qkv{}, d_qkv{};    // of q, k, v
    BufferId o = kNoBuffer, d_o = kNoBuffer;
    std::vector<BufferId> saved_project, saved_finish;
  };
  Op compute(std::string_view what, int64_t s) const;
  std::vector<BufferId> buffers_of(const std::string& name, bool saved, const Segment& segment);
  BufferId like(const std::string& name, BufferId other);
  double flops(const Segment& segment) const;  // forward

  const Recipe& recipe_;
  StepGraph& graph_;
  int32_t micro_batch_;
  int64_t slots_;
  AttentionOps attention_;
  std::vector<Block> blocks_;
  BufferId x_ = kNoBuffer, dx_ = kNoBuffer;
};

}  // namespace ballast
