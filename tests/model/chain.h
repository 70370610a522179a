#pragma once
// A whole model forward and backward, by calling the segments in order with plain local buffers: what tests hold the
// segments (and later the engine) against.
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "ballast/model/forward.h"
#include "ballast/model/model_weights.h"
#include "ballast/plan/activations.h"

namespace ballast::chain {

// Sequences of ids packed one after another, positions restarting, each token's target the next one of its sequence.
inline MicroBatch pack(const std::vector<std::vector<int64_t>>& sequences) {
  MicroBatch batch;
  batch.starts = {0};
  std::vector<int64_t> ids, positions, targets;
  for (const auto& sequence : sequences) {
    for (size_t i = 0; i < sequence.size(); ++i) {
      ids.push_back(sequence[i]);
      positions.push_back(static_cast<int64_t>(i));
      targets.push_back(i + 1 < sequence.size() ? sequence[i + 1] : -1);
    }
    batch.starts.push_back(static_cast<int64_t>(ids.size()));
    batch.sample_keys.push_back(batch.sample_keys.size());
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.targets = at::tensor(targets, at::kLong);
  return batch;
}

inline std::vector<at::Tensor> buffers(const std::vector<TensorSpec>& specs) {
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& spec : specs)
    tensors.push_back(
        at::empty(spec.shape, at::TensorOptions().dtype(spec.dtype == DType::BFloat16 ? at::kBFloat16 : at::kFloat)));
  return tensors;
}

struct Result {
  at::Tensor token_losses;            // [T]
  std::vector<at::Tensor> gradients;  // fp32, per group, of scale * sum of losses
};

inline Result run(const ModelWeights& weights, const MicroBatch& batch, double scale, bool train = false,
                  uint64_t seed = 0) {
  struct Layer {
    at::Tensor x;
    std::vector<at::Tensor> qkv, attended;
    Saved project, finish;
  };
  const ModelShape& shape = weights.shape();
  const ModelConfig& config = shape.config;
  const int64_t tokens = batch.tokens();
  const DType compute = weights.dtype() == at::kBFloat16 ? DType::BFloat16 : DType::Float32;
  const auto wide = at::TensorOptions().dtype(at::kFloat);
  Result result{at::empty({tokens}, wide), {}};
  for (const ParameterGroup& group : shape.groups)
    result.gradients.push_back(group.trainable ? at::zeros({group.numel}, wide) : at::Tensor());
  std::vector<RoleTensors> gradients;
  for (const Segment& segment : shape.segments) gradients.push_back(views_of(shape, segment, result.gradients));
  const auto call = [&](size_t index) {
    return SegmentCall{
        config, shape.segments[index].layer, batch, weights.roles(static_cast<int64_t>(index)), gradients[index], train,
        seed};
  };

  std::vector<Layer> layers(static_cast<size_t>(config.layers));
  at::Tensor x = buffers(outputs_of(SegmentKind::Embedding, config, tokens, compute)).at(0), dx, d_o, delta;
  const size_t count = shape.segments.size();
  for (size_t index = 0; index < count; ++index) {
    const Segment& segment = shape.segments[index];
    Layer* layer = segment.layer < 0 ? nullptr : &layers[static_cast<size_t>(segment.layer)];
    switch (segment.kind) {
      case SegmentKind::Embedding:
        embedding_forward(call(index), x);
        break;
      case SegmentKind::Project:
        layer->x = x;
        layer->qkv = buffers(outputs_of(segment.kind, config, tokens, compute));
        layer->project = buffers(saved_of(segment.kind, config, tokens, compute));
        project_forward(call(index), x, layer->qkv[0], layer->qkv[1], layer->qkv[2], layer->project);
        break;
      case SegmentKind::Attend:
        layer->attended = buffers(outputs_of(segment.kind, config, tokens, compute));
        attend_forward(call(index), whole_sequences(batch), layer->qkv[0], layer->qkv[1], layer->qkv[2],
                       layer->attended[0], layer->attended[1]);
        break;
      case SegmentKind::Finish:
        layer->finish = buffers(saved_of(segment.kind, config, tokens, compute));
        x = at::empty_like(layer->x);
        finish_forward(call(index), layer->x, layer->attended[0], x, layer->finish);
        break;
      case SegmentKind::Head:
        dx = at::empty_like(x);
        head_train(call(index), x, scale, dx, result.token_losses);
        break;
    }
  }
  std::vector<at::Tensor> upper;  // dq, dk, dv
  for (size_t index = count - 1; index-- > 0;) {
    const Segment& segment = shape.segments[index];
    Layer* layer = segment.layer < 0 ? nullptr : &layers[static_cast<size_t>(segment.layer)];
    switch (segment.kind) {
      case SegmentKind::Embedding:
        embedding_backward(call(index), dx);
        break;
      case SegmentKind::Project:
        project_backward(call(index), layer->x, layer->project, upper[0], upper[1], upper[2], dx);
        break;
      case SegmentKind::Attend:
        upper = buffers(outputs_of(SegmentKind::Project, config, tokens, compute));
        delta = at::empty_like(layer->attended[1]);
        attend_delta(call(index), layer->attended[0], d_o, delta);
        attend_backward(call(index), whole_sequences(batch), layer->qkv[0], layer->qkv[1], layer->qkv[2],
                        layer->attended[1], delta, d_o, upper[0], upper[1], upper[2]);
        break;
      case SegmentKind::Finish:
        d_o = at::empty_like(layer->attended[0]);
        finish_backward(call(index), layer->x, layer->attended[0], layer->finish, dx, d_o);
        break;
      case SegmentKind::Head:
        break;
    }
  }
  return result;
}

}  // namespace ballast::chain
