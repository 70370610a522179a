#pragma once
// The tensors behind a graph's buffers: persistent states, allocated once, and the two arenas in which step buffers have their
// planned places. Nothing is allocated while a graph runs.
#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/graph/shards.h"
#include "ballast/model/segments.h"

namespace ballast {

at::ScalarType scalar_type(DType dtype);

class GraphMemory {
 public:
  GraphMemory(const Recipe& recipe, int64_t rank);

  const PersistentState& state() const { return state_; }
  // Makes the arenas large enough for the graph.
  void reserve(const StepGraph& graph);
  // The same, and views its buffers.
  void bind(const StepGraph& graph);
  // The tensor of a buffer of the bound graph (or a persistent one, any time).
  const at::Tensor& tensor(BufferId id) const { return views_[static_cast<size_t>(id)]; }
  // Fills step buffers with a NaN pattern (test builds): called for each buffer before its first write.
  void poison(BufferId id);
  int64_t persistent_bytes() const { return persistent_bytes_; }
  int64_t arena_bytes() const;

 private:
  PersistentState state_;
  std::vector<at::Tensor> views_;   // by BufferId
  at::Tensor activations_, buffers_;
  int64_t persistent_bytes_ = 0;
};

// Views of a group's tensors in its full flat buffer, by role, added to `roles`.
void add_role_views(const ParameterGroup& group, const at::Tensor& flat, RoleTensors& roles);
// Zeroes what lies between a group's tensors and after them: elements that no kernel writes.
void zero_gaps(const ParameterGroup& group, const at::Tensor& flat);

}  // namespace ballast
