// The runners of compute operations (segments) and of hops.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "ballast/base/check.h"
#include "ballast/codec/codec.h"
#include "ballast/comm/collectives.h"
#include "ballast/engine/engine.h"
#include "ballast/engine/run.h"

namespace ballast {

void Engine::execute_segment(const Op& op, GraphRun& run) {
  const Segment& segment = recipe_.model.segments[static_cast<size_t>(op.segment)];
  RoleTensors weights, gradients;
  for (size_t i = 0; i < op.weights.size(); ++i) {
    add_role_views(recipe_.model.groups[static_cast<size_t>(segment.groups[i])], memory_.tensor(op.weights[i]), weights);
  }
  size_t trainable = 0;
  for (int64_t g : segment.groups) {
    const ParameterGroup& group = recipe_.model.groups[static_cast<size_t>(g)];
    if (op.gradients.empty() || !group.trainable) continue;
    add_role_views(group, memory_.tensor(op.gradients[trainable++]), gradients);
  }
  BALLAST_CHECK(trainable == op.gradients.size(), "{} gradient buffers, {} trainable groups", op.gradients.size(), trainable);
  BALLAST_CHECK(op.micro_batch >= 0 && op.micro_batch < static_cast<int32_t>(run.batches.size()), "micro-batch {} of {}", op.micro_batch, run.batches.size());
  const MicroBatch& batch = run.batches[static_cast<size_t>(op.micro_batch)];
  SegmentCall call{recipe_.model.config, segment.layer, batch, weights, gradients};
  call.train = run.train;
  call.seed = options_.seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(run.settings.step);
  const auto in = [&](size_t i) -> const at::Tensor& { return memory_.tensor(op.inputs[i]); };
  at::Tensor out[4];
  for (size_t i = 0; i < op.outputs.size(); ++i) out[i] = memory_.tensor(op.outputs[i]);
  Saved saved;
  for (BufferId id : op.saved) saved.push_back(memory_.tensor(id));

  if (op.what == what::kForward) {
    switch (segment.kind) {
      case SegmentKind::Embedding: return embedding_forward(call, out[0]);
      case SegmentKind::Project: return project_forward(call, in(0), out[0], out[1], out[2], saved);
      case SegmentKind::Attend: return attend_forward(call, in(0), in(1), in(2), out[0], out[1]);
      case SegmentKind::Finish: return finish_forward(call, in(0), in(1), out[0], saved);
      case SegmentKind::Head: break;
    }
  } else if (op.what == what::kRecompute) {
    if (segment.kind == SegmentKind::Project) return project_recompute(call, in(0), saved);
    if (segment.kind == SegmentKind::Finish) return finish_recompute(call, in(0), in(1), saved);
  } else if (op.what == what::kBackward) {
    switch (segment.kind) {
      case SegmentKind::Embedding: return embedding_backward(call, in(0));
      case SegmentKind::Project: return project_backward(call, in(0), saved, out[0], out[1], out[2], out[3]);
      case SegmentKind::Attend: return attend_backward(call, in(0), in(1), in(2), in(3), in(4), in(5), out[0], out[1], out[2]);
      case SegmentKind::Finish: return finish_backward(call, in(0), in(1), saved, out[0], out[1]);
      case SegmentKind::Head: break;
    }
  } else if (op.what == what::kHeadTrain || op.what == what::kHeadLoss) {
    at::Tensor losses = out[op.outputs.size() - 1];
    if (op.what == what::kHeadTrain) {
      head_train(call, in(0), run.scale, out[0], losses);
    } else {
      head_loss(call, in(0), losses);
    }
    const float* values = losses.const_data_ptr<float>();
    const int64_t* targets = batch.targets.const_data_ptr<int64_t>();
    for (int64_t t = 0; t < losses.numel(); ++t) {
      if (targets[t] < 0) continue;
      run.loss.add(static_cast<double>(values[t]));
      ++run.targets;
    }
    return;
  }
  BALLAST_CHECK(false, "no runner for {} {}", op.what, name_of(segment.kind));
}

void Engine::execute_hop(const Op& op, GraphRun& run) {
  const std::vector<int64_t> members = recipe_.topology.hop_members(rank(), op.level);
  const Hop hop{members, recipe_.topology.coordinate(rank(), op.level), op.tag, Purpose{describe(op), op.tag}};
  const auto count = static_cast<int64_t>(members.size());
  const at::Tensor& output = memory_.tensor(op.outputs[0]);
  if (op.what == what::kGather) {
    const int64_t width = output.element_size();
    BALLAST_CHECK(op.begin >= 0 && op.begin + count * op.part <= output.numel(), "range {} + {} x {} of {}", op.begin, count, op.part, output.numel());
    gather(communicator_, hop, static_cast<char*>(output.data_ptr()) + op.begin * width, op.part * width);
    return;
  }
  const Codec& codec = codec_for(op.codec);
  const at::Tensor& wire = memory_.tensor(op.saved[0]);
  if (op.what == what::kGatherEncoded) {
    // The sender too uses the decoded value, so that replicas never diverge.
    auto* encoded = static_cast<char*>(wire.data_ptr());
    const int64_t part_bytes = codec.encoded_bytes(op.part);
    float* range = output.data_ptr<float>() + op.begin;
    codec.encode(range + hop.index * op.part, op.part, encoded + hop.index * part_bytes);
    gather(communicator_, hop, encoded, part_bytes);
    for (int64_t j = 0; j < count; ++j) codec.decode(encoded + j * part_bytes, op.part, range + j * op.part);
    return;
  }
  BALLAST_CHECK(op.what == what::kReduce, "no runner for {}", op.what);
  BALLAST_CHECK(wire.nbytes() >= static_cast<size_t>(reduce_wire_bytes(codec, count, op.part)), "wire of {} bytes", wire.nbytes());
  const float* source = memory_.tensor(op.inputs[0]).const_data_ptr<float>() + op.begin;
  const bool in_place = op.inputs[0] == op.outputs[0];
  float* result = output.data_ptr<float>() + (in_place ? op.begin + hop.index * op.part : 0);
  reduce_scatter(communicator_, hop, codec, source, op.part, result, op.accumulate, wire.data_ptr());
  static_cast<void>(run);
}

void Engine::poison_fresh(const Op& op, GraphRun& run) {
  const auto fresh = [&](BufferId id) {
    const auto b = static_cast<size_t>(id);
    if (run.graph->buffers[b].persistent || run.touched[b]) return;
    run.touched[b] = 1;
    memory_.poison(id);
  };
  for (BufferId id : op.outputs) fresh(id);
  for (BufferId id : op.saved) fresh(id);
}

}  // namespace ballast
