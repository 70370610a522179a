#pragma once
// Turns the segments of one micro-batch into compute operations over activation buffers.
#include "ballast/plan/layout.h"
#include "ballast/plan/shards.h"

namespace ballast {

class SegmentOps {
 public:
  // Adds its buffers to `graph`. `micro_batch` is the index that the operations carry.
  SegmentOps(const Recipe& recipe, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch);

  // `s` indexes ModelShape::segments. To be called in order: forwards up, head, then recomputes and backwards down.
  Op forward(int64_t s);
  Op head_train(int64_t s);   // outputs: gradient of x, token losses
  Op head_loss(int64_t s);    // outputs: token losses
  Op recompute(int64_t s);
  Op backward(int64_t s);
  bool recomputes(const Segment& segment) const;
  int64_t scratch(const Segment& segment, const Op& op) const;   // bytes

 private:
  struct Block {
    BufferId x = kNoBuffer;                    // input of the block
    std::vector<BufferId> qkv, attended;       // q, k, v; o, lse
    std::vector<BufferId> saved_project, saved_finish;
    std::vector<BufferId> d_qkv;
    BufferId d_o = kNoBuffer;
  };
  Op compute(std::string_view what, int64_t s) const;
  std::vector<BufferId> buffers_of(const std::string& name, bool saved, const Segment& segment);
  BufferId like(const std::string& name, BufferId other);
  double flops(const Segment& segment) const;  // forward

  const Recipe& recipe_;
  StepGraph& graph_;
  const MicroBatchLayout& layout_;
  int32_t micro_batch_;
  int64_t slots_;
  std::vector<Block> blocks_;
  BufferId x_ = kNoBuffer, dx_ = kNoBuffer;
};

}  // namespace ballast
