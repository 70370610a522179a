#include "ballast/graph/segment_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/plan/activations.h"

namespace ballast {

SegmentOps::SegmentOps(const Recipe& recipe, int64_t rank, StepGraph& graph, const MicroBatchLayout& layout, int32_t micro_batch)
    : recipe_(recipe), graph_(graph), micro_batch_(micro_batch), slots_(layout.slots()),
      attention_(recipe, rank, graph, layout, micro_batch), blocks_(static_cast<size_t>(recipe.model.config.layers)) {}

bool SegmentOps::recomputes(const Segment& segment) const {
  return recipe_.recompute_every > 0 && segment.layer >= 0 && segment.layer % recipe_.recompute_every == 0;
}

Op SegmentOps::compute(std::string_view what, int64_t s) const {
  Op op;
  op.what = what;
  op.segment = static_cast<int32_t>(s);
  op.micro_batch = micro_batch_;
  const double forward = flops(recipe_.model.segments[static_cast<size_t>(s)]);
  op.flops = what == what::kBackward ? 2 * forward : what == what::kHeadTrain ? 3 * forward : forward;
  return op;
}

std::vector<BufferId> SegmentOps::buffers_of(const std::string& name, bool saved, const Segment& segment) {
  const auto specs = saved ? saved_of(segment.kind, recipe_.model.config, slots_, recipe_.compute)
                           : outputs_of(segment.kind, recipe_.model.config, slots_, recipe_.compute);
  std::vector<BufferId> ids;
  for (const TensorSpec& spec : specs) {
    Buffer buffer;
    buffer.name = fmt::format("{}.{}/{}", name, spec.name, micro_batch_);
    buffer.state = StateKind::Activations;
    buffer.dtype = spec.dtype;
    buffer.shape = spec.shape;
    graph_.buffers.push_back(std::move(buffer));
    ids.push_back(static_cast<BufferId>(graph_.buffers.size() - 1));
  }
  return ids;
}

BufferId SegmentOps::like(const std::string& name, BufferId other) {
  Buffer buffer = graph_.buffers[static_cast<size_t>(other)];
  buffer.name = fmt::format("{}/{}", name, micro_batch_);
  graph_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(graph_.buffers.size() - 1);
}

std::vector<Op> SegmentOps::forward(int64_t s) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  if (segment.kind == SegmentKind::Attend) {
    Block& block = blocks_[static_cast<size_t>(segment.layer)];
    std::vector<Op> ops;
    block.o = attention_.forward(s, block.qkv, ops);
    return ops;
  }
  Op op = compute(what::kForward, s);
  op.outputs = buffers_of(segment.name(), false, segment);
  op.saved = buffers_of(segment.name(), true, segment);
  if (segment.kind == SegmentKind::Embedding) {
    x_ = op.outputs.front();
    return {op};
  }
  Block& block = blocks_[static_cast<size_t>(segment.layer)];
  if (segment.kind == SegmentKind::Project) {
    block.x = x_;
    op.inputs = {block.x};
    std::copy(op.outputs.begin(), op.outputs.end(), block.qkv.begin());
    block.saved_project = op.saved;
  } else {
    op.inputs = {block.x, block.o};
    block.saved_finish = op.saved;
    x_ = op.outputs.front();
  }
  return {op};
}

Op SegmentOps::head_train(int64_t s) {
  Op op = head_loss(s);
  const Op plain = compute(what::kHeadTrain, s);
  op.what = plain.what;
  op.flops = plain.flops;
  dx_ = like("gradient.x", x_);
  op.outputs = {dx_, op.outputs.front()};
  return op;
}

Op SegmentOps::head_loss(int64_t s) {
  Op op = compute(what::kHeadLoss, s);
  op.inputs = {x_};
  Buffer losses;
  losses.name = fmt::format("head.losses/{}", micro_batch_);
  losses.state = StateKind::Activations;
  losses.shape = {slots_};
  graph_.buffers.push_back(std::move(losses));
  op.outputs = {static_cast<BufferId>(graph_.buffers.size() - 1)};
  return op;
}

Op SegmentOps::recompute(int64_t s) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  Block& block = blocks_[static_cast<size_t>(segment.layer)];
  Op op = compute(what::kRecompute, s);
  op.saved = buffers_of("again." + segment.name(), true, segment);
  if (segment.kind == SegmentKind::Project) {
    op.inputs = {block.x};
    block.saved_project = op.saved;
  } else {
    op.inputs = {block.x, block.o};
    block.saved_finish = op.saved;
  }
  return op;
}

std::vector<Op> SegmentOps::backward(int64_t s) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(s)];
  if (segment.kind == SegmentKind::Attend) {
    Block& block = blocks_[static_cast<size_t>(segment.layer)];
    std::vector<Op> ops;
    block.d_qkv = attention_.backward(s, block.d_o, ops);
    return ops;
  }
  Op op = compute(what::kBackward, s);
  if (segment.kind == SegmentKind::Embedding) {
    op.inputs = {dx_};
    return {op};
  }
  Block& block = blocks_[static_cast<size_t>(segment.layer)];
  if (segment.kind == SegmentKind::Finish) {
    block.d_o = like("gradient." + segment.name() + ".o", block.o);
    op.inputs = {block.x, block.o};
    op.outputs = {dx_, block.d_o};
    op.saved = block.saved_finish;
  } else {
    op.inputs = {block.x};
    op.outputs = {block.d_qkv[0], block.d_qkv[1], block.d_qkv[2], dx_};
    op.saved = block.saved_project;
  }
  return {op};
}

int64_t SegmentOps::scratch(const Segment& segment, const Op& op) const {
  if (segment.kind == SegmentKind::Attend) return attend_scratch_bytes(recipe_.model.config, op.units, recipe_.compute, op.what == what::kAttendBackward, kScratchThreads);
  return scratch_bytes(segment.kind, recipe_.model.config, slots_, recipe_.compute, op.what == what::kBackward || op.what == what::kHeadTrain);
}

double SegmentOps::flops(const Segment& segment) const {
  const auto tokens = static_cast<double>(slots_);
  if (segment.kind == SegmentKind::Embedding) return 0;
  double weights = 0;
  for (int64_t g : segment.groups) {
    for (const ParameterTensor& tensor : recipe_.model.groups[static_cast<size_t>(g)].tensors) {
      const bool projects = tensor.role == Role::QkvWeight || tensor.role == Role::QueryWeight || tensor.role == Role::KeyWeight || tensor.role == Role::ValueWeight;
      const bool finishes = tensor.role == Role::OutputWeight || tensor.role == Role::UpWeight || tensor.role == Role::GateWeight || tensor.role == Role::DownWeight;
      const bool heads = tensor.role == Role::HeadWeight || tensor.role == Role::TokenEmbedding;
      if ((segment.kind == SegmentKind::Project && projects) || (segment.kind == SegmentKind::Finish && finishes) || (segment.kind == SegmentKind::Head && heads)) {
        weights += static_cast<double>(tensor.numel());
      }
    }
  }
  return 2.0 * weights * tokens;
}

}  // namespace ballast
