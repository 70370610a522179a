#include "ballast/engine/memory.h"

#include <ATen/ATen.h>

#include <cstring>

#include "ballast/base/check.h"

namespace ballast {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::Float32: return at::kFloat;
    case DType::BFloat16: return at::kBFloat16;
    case DType::Float16: return at::kHalf;
    case DType::Int64: return at::kLong;
    case DType::Int32: return at::kInt;
    case DType::UInt8: return at::kByte;
    case DType::Float64: return at::kDouble;
  }
  return at::kFloat;
}

GraphMemory::GraphMemory(const Recipe& recipe, int64_t rank) : state_(persistent_state(recipe, rank)) {
  for (const Buffer& buffer : state_.buffers) {
    if (buffer.alias_of != kNoBuffer) {
      views_.push_back(views_[static_cast<size_t>(buffer.alias_of)].narrow(0, buffer.alias_offset, buffer.numel()));
    } else {
      views_.push_back(at::zeros(buffer.shape, scalar_type(buffer.dtype)));
      persistent_bytes_ += buffer.bytes();
    }
  }
}

int64_t GraphMemory::arena_bytes() const {
  return (activations_.defined() ? activations_.numel() : 0) + (buffers_.defined() ? buffers_.numel() : 0);
}

void GraphMemory::reserve(const StepGraph& graph) {
  const auto grow = [](at::Tensor& arena, int64_t bytes) {
    if (arena.defined() && arena.numel() >= bytes) return;
    arena = at::Tensor();  // the old one goes first: the two never stand side by side
    arena = at::empty({bytes}, at::kByte);
  };
  grow(activations_, graph.activation_bytes);
  grow(buffers_, graph.buffer_bytes);
}

void GraphMemory::bind(const StepGraph& graph) {
  views_.resize(static_cast<size_t>(graph.persistent));
  reserve(graph);
  for (size_t b = static_cast<size_t>(graph.persistent); b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (buffer.arena_offset < 0) {  // nothing uses it
      views_.emplace_back();
      continue;
    }
    const at::Tensor& arena = buffer.state == StateKind::Activations ? activations_ : buffers_;
    auto* data = static_cast<char*>(arena.data_ptr()) + buffer.arena_offset;
    views_.push_back(at::from_blob(data, buffer.shape, at::TensorOptions().dtype(scalar_type(buffer.dtype))));
  }
}

void GraphMemory::poison(BufferId id) {
  const at::Tensor& view = tensor(id);
  if (view.is_floating_point()) {
    view.fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    view.fill_(0xFF);  // as a scale of a block: NaN
  }
}

void add_role_views(const ParameterGroup& group, const at::Tensor& flat, RoleTensors& roles) {
  for (const ParameterTensor& tensor : group.tensors) {
    at::Tensor& view = roles[static_cast<size_t>(tensor.role)];
    BALLAST_CHECK(!view.defined(), "two tensors for one role: {}", tensor.name);
    view = flat.narrow(0, tensor.offset, tensor.numel()).view(tensor.shape);
  }
}

void zero_gaps(const ParameterGroup& group, const at::Tensor& flat) {
  const auto zero = [&flat](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(flat.data_ptr()) + begin * flat.element_size(), 0, static_cast<size_t>((end - begin) * flat.element_size()));
  };
  int64_t done = 0;
  for (const ParameterTensor& tensor : group.tensors) {
    BALLAST_CHECK(tensor.offset >= done, "'{}' lies before the tensor that precedes it", tensor.name);
    zero(done, tensor.offset);
    done = tensor.offset + tensor.numel();
  }
  zero(done, flat.numel());
}

}  // namespace ballast
