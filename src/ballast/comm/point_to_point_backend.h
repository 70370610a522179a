#pragma once
// A c10d back end that has only send and recv of its own: the collectives that c10d's users expect are built from them.
// They run on the calling thread and return finished work; sums are in the order of ranks, equal on all of them.
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace ballast {

class PointToPointBackend : public c10d::Backend {
 public:
  PointToPointBackend(int rank, int size) : c10d::Backend(rank, size) {}

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = c10d::BarrierOptions()) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = c10d::BroadcastOptions()) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = c10d::AllgatherOptions()) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = c10d::AllreduceOptions()) override;

 protected:
  // The only tensor of a call; refuses what is not one contiguous CPU tensor.
  const at::Tensor& only(const std::vector<at::Tensor>& tensors) const;
  virtual c10::intrusive_ptr<c10d::Work> finished(c10d::OpType type) const = 0;

 private:
  std::vector<at::Tensor> gather_all(const at::Tensor& mine, std::chrono::milliseconds timeout);
  int collective_ = 0;  // its negative is the tag of the next collective: users' tags are not negative
};

}  // namespace ballast
