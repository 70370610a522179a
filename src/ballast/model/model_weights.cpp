#include "ballast/model/model_weights.h"

#include <ATen/ATen.h>

#include "ballast/base/check.h"
#include "ballast/model/initialize.h"

namespace ballast {

RoleTensors views_of(const ModelShape& shape, const Segment& segment, std::span<const at::Tensor> flat) {
  RoleTensors roles;
  for (const int64_t index : segment.groups) {
    const at::Tensor& buffer = flat[static_cast<size_t>(index)];
    if (!buffer.defined()) continue;
    for (const ParameterTensor& tensor : shape.groups[static_cast<size_t>(index)].tensors)
      roles[static_cast<size_t>(tensor.role)] = buffer.narrow(0, tensor.offset, tensor.numel()).view(tensor.shape);
  }
  return roles;
}

ModelWeights::ModelWeights(ModelShape shape, at::ScalarType dtype) : shape_(std::move(shape)), dtype_(dtype) {
  for (const ParameterGroup& group : shape_.groups)
    flat_.push_back(at::zeros({group.numel}, at::TensorOptions().dtype(dtype)));
  for (const Segment& segment : shape_.segments) roles_.push_back(views_of(shape_, segment, flat_));
}

void ModelWeights::set_group(int64_t group, const float* values) {
  const at::Tensor& flat = flat_[static_cast<size_t>(group)];
  flat.copy_(at::from_blob(const_cast<float*>(values), {flat.numel()}, at::TensorOptions().dtype(at::kFloat)));
}

ModelWeights ModelWeights::from_folder(const ModelFolder& folder, at::ScalarType dtype) {
  ModelWeights weights(describe(folder.config()), dtype);
  for (size_t index = 0; index < weights.shape_.groups.size(); ++index) {
    const ParameterGroup& group = weights.shape_.groups[index];
    if (dtype == at::kFloat) {
      folder.load_group(group, weights.flat_[index].data_ptr<float>());
    } else {
      const at::Tensor wide = at::empty({group.numel}, at::TensorOptions().dtype(at::kFloat));
      folder.load_group(group, wide.data_ptr<float>());
      weights.flat_[index].copy_(wide);
    }
  }
  return weights;
}

ModelWeights ModelWeights::random(const ModelConfig& config, uint64_t seed, at::ScalarType dtype) {
  ModelWeights weights(describe(config), dtype);
  for (size_t index = 0; index < weights.shape_.groups.size(); ++index) {
    const ParameterGroup& group = weights.shape_.groups[index];
    const at::Tensor wide = at::empty({group.numel}, at::TensorOptions().dtype(at::kFloat));
    initialize_group(config, group, seed, wide.data_ptr<float>());
    weights.flat_[index].copy_(wide);
  }
  return weights;
}

}  // namespace ballast
