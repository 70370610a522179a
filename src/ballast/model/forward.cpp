#include "ballast/model/forward.h"

#include <ATen/ATen.h>

#include <utility>

#include "ballast/base/check.h"
#include "ballast/plan/activations.h"

namespace ballast {

namespace {

DType plan_dtype(at::ScalarType dtype) { return dtype == at::kBFloat16 ? DType::BFloat16 : DType::Float32; }

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return at::kFloat;
    case DType::BFloat16:
      return at::kBFloat16;
    case DType::Int64:
      return at::kLong;
    case DType::Int32:
      return at::kInt;
    case DType::UInt8:
      return at::kByte;
    case DType::Float16:
      return at::kHalf;
    case DType::Float64:
      return at::kDouble;
  }
  BALLAST_CHECK(false, "dtype");
}

std::vector<at::Tensor> allocate(const std::vector<TensorSpec>& specs) {
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& spec : specs)
    tensors.push_back(at::empty(spec.shape, at::TensorOptions().dtype(scalar_type(spec.dtype))));
  return tensors;
}

}  // namespace

void attend_whole(const SegmentCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& o, at::Tensor& lse) {
  attend_forward(call, whole_sequences(call.batch), q, k, v, o, lse);
}

at::Tensor forward_blocks(const ModelWeights& weights, const MicroBatch& batch, const Attend& attend) {
  const ModelConfig& config = weights.config();
  const int64_t tokens = batch.tokens();
  const DType compute = plan_dtype(weights.dtype());
  static const RoleTensors kNoGradients;
  at::Tensor x = allocate(outputs_of(SegmentKind::Embedding, config, tokens, compute)).at(0);
  at::Tensor y = at::empty_like(x);
  std::vector<at::Tensor> qkv = allocate(outputs_of(SegmentKind::Project, config, tokens, compute));
  std::vector<at::Tensor> attended = allocate(outputs_of(SegmentKind::Attend, config, tokens, compute));
  const Saved project_saved = allocate(saved_of(SegmentKind::Project, config, tokens, compute));
  const Saved finish_saved = allocate(saved_of(SegmentKind::Finish, config, tokens, compute));
  for (size_t index = 0; index < weights.shape().segments.size(); ++index) {
    const Segment& segment = weights.shape().segments[index];
    const SegmentCall call{config,       segment.layer, batch, weights.roles(static_cast<int64_t>(index)),
                           kNoGradients, false,         0};
    switch (segment.kind) {
      case SegmentKind::Embedding:
        embedding_forward(call, x);
        break;
      case SegmentKind::Project:
        project_forward(call, x, qkv[0], qkv[1], qkv[2], project_saved);
        break;
      case SegmentKind::Attend:
        attend(call, qkv[0], qkv[1], qkv[2], attended[0], attended[1]);
        break;
      case SegmentKind::Finish:
        finish_forward(call, x, attended[0], y, finish_saved);
        std::swap(x, y);
        break;
      case SegmentKind::Head:
        break;
    }
  }
  return x;
}

namespace {

SegmentCall head_call(const ModelWeights& weights, const MicroBatch& batch) {
  static const RoleTensors kNoGradients;
  const auto last = static_cast<int64_t>(weights.shape().segments.size()) - 1;
  BALLAST_CHECK(weights.shape().segments[static_cast<size_t>(last)].kind == SegmentKind::Head,
                "the last segment is the head");
  return {weights.config(), -1, batch, weights.roles(last), kNoGradients, false, 0};
}

}  // namespace

at::Tensor forward_logits(const ModelWeights& weights, const MicroBatch& batch, const at::Tensor& rows) {
  return head_logits(head_call(weights, batch), rows);
}

at::Tensor evaluate_batch(const ModelWeights& weights, const MicroBatch& batch) {
  const at::Tensor x = forward_blocks(weights, batch, attend_whole);
  at::Tensor losses = at::zeros({batch.tokens()}, at::TensorOptions().dtype(at::kFloat));
  head_loss(head_call(weights, batch), x, losses);
  return losses;
}

}  // namespace ballast
