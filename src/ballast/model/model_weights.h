#pragma once
// A whole model's weights in memory, in the compute dtype, one flat buffer per parameter group: what evaluation and
// generation run on. Training's sharded buffers are the engine's.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/model/model_folder.h"
#include "ballast/model/segments.h"
#include "ballast/plan/model_shape.h"

namespace ballast {

// Views into flat group buffers (indexed as shape.groups) of every tensor that a segment's groups hold. An undefined
// buffer leaves its tensors undefined.
RoleTensors views_of(const ModelShape& shape, const Segment& segment, std::span<const at::Tensor> flat);

class ModelWeights {
 public:
  // Zero weights; `dtype` is at::kFloat or at::kBFloat16.
  ModelWeights(ModelShape shape, at::ScalarType dtype);
  // Holds one group in fp32 beside the result while it reads.
  static ModelWeights from_folder(const ModelFolder& folder, at::ScalarType dtype);
  static ModelWeights random(const ModelConfig& config, uint64_t seed, at::ScalarType dtype);

  const ModelShape& shape() const { return shape_; }
  const ModelConfig& config() const { return shape_.config; }
  at::ScalarType dtype() const { return dtype_; }
  // Fills the group from fp32 values in the layout of its flat buffer, rounding to the compute dtype.
  void set_group(int64_t group, const float* values);
  const at::Tensor& flat(int64_t group) const { return flat_[static_cast<size_t>(group)]; }
  // Views for shape().segments[segment].
  const RoleTensors& roles(int64_t segment) const { return roles_[static_cast<size_t>(segment)]; }

 private:
  ModelShape shape_;
  at::ScalarType dtype_;
  std::vector<at::Tensor> flat_;
  std::vector<RoleTensors> roles_;
};

}  // namespace ballast
