#include "ballast/comm/point_to_point_backend.h"

namespace ballast {

const at::Tensor& PointToPointBackend::only(const std::vector<at::Tensor>& tensors) const {
  TORCH_CHECK(tensors.size() == 1 && tensors[0].is_contiguous() && tensors[0].is_cpu(), getBackendName(),
              ": one contiguous CPU tensor expected");
  return tensors[0];
}

std::vector<at::Tensor> PointToPointBackend::gather_all(const at::Tensor& mine, std::chrono::milliseconds timeout) {
  const int tag = -1 - collective_++;
  std::vector<at::Tensor> all, tensor(1);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int peer = 0; peer < getSize(); ++peer) {
    all.push_back(peer == getRank() ? mine.clone() : at::empty_like(mine));
    if (peer == getRank()) continue;
    tensor[0] = all.back();
    works.push_back(recv(tensor, peer, tag));
  }
  tensor[0] = mine;
  for (int peer = 0; peer < getSize(); ++peer) {
    if (peer != getRank()) works.push_back(send(tensor, peer, tag));
  }
  try {
    const auto limit = timeout == c10d::kUnsetTimeout ? kNoTimeout : timeout;
    for (const auto& work : works) TORCH_CHECK(work->wait(limit), getBackendName(), ": a collective timed out");
  } catch (...) {
    for (const auto& work : works) work->abort();  // their buffers end here
    throw;
  }
  return all;
}

c10::intrusive_ptr<c10d::Work> PointToPointBackend::barrier(const c10d::BarrierOptions& options) {
  gather_all(at::zeros({1}, at::kByte), options.timeout);
  return finished(c10d::OpType::BARRIER);
}

c10::intrusive_ptr<c10d::Work> PointToPointBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                              const c10d::BroadcastOptions& options) {
  const std::vector<at::Tensor> all = gather_all(only(tensors), options.timeout);
  tensors[0].copy_(all[static_cast<size_t>(options.rootRank)]);
  return finished(c10d::OpType::BROADCAST);
}

c10::intrusive_ptr<c10d::Work> PointToPointBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                              std::vector<at::Tensor>& inputs,
                                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(), getBackendName(),
              ": one output per rank expected");
  const std::vector<at::Tensor> all = gather_all(only(inputs), options.timeout);
  for (size_t peer = 0; peer < all.size(); ++peer) outputs[0][peer].copy_(all[peer]);
  return finished(c10d::OpType::ALLGATHER);
}

c10::intrusive_ptr<c10d::Work> PointToPointBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                              const c10d::AllreduceOptions& options) {
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, getBackendName(), ": allreduce only sums");
  const std::vector<at::Tensor> all = gather_all(only(tensors), options.timeout);
  tensors[0].copy_(all[0]);
  for (size_t peer = 1; peer < all.size(); ++peer) tensors[0].add_(all[peer]);
  return finished(c10d::OpType::ALLREDUCE);
}

}  // namespace ballast
