#pragma once
// Writes one checkpoint from all ranks: each its shard, rank 0 the model folder, the state and, last, the manifest; then the
// whole folder gets its name by one rename. The order over ranks, with the caller's own barriers:
//   every rank: construct;  barrier;  every rank: add ..., finish_rank;  rank 0: model/ by the caller;
//   all ranks' finish_rank() texts gathered;  rank 0: commit;  barrier.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/checkpoint/state.h"

namespace ballast {

// A part of a state of a logical tensor: elements [begin, end) of it flattened in row-major order. Any layout can be
// written as such parts and read back from them.
struct StateItem {
  std::string state;   // "adam.m", "adam.v", "sgd.momentum", ...; no '/'
  std::string tensor;  // as in the model folder: "transformer.h.0.attn.c_attn.weight"
  int64_t begin = 0, end = 0;
  at::Tensor data;     // CPU, contiguous, end - begin elements; not copied: must stay unchanged until finish_rank
};

class CheckpointWriter {
 public:
  // Rank 0 makes the temporary folder, removing what a crash left at this step.
  CheckpointWriter(std::filesystem::path run, int64_t step, int64_t rank, int64_t ranks);
  // Removes the temporary folder if rank 0 did not commit.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Where rank 0 writes config.json, model.safetensors (fp32 master weights) and tokenizer files before commit.
  std::filesystem::path model_folder() const { return temporary_ / "model"; }
  void add(StateItem item);
  // Writes and syncs this rank's shard; the text describes it to rank 0.
  std::string finish_rank();
  // Rank 0: `shards` are the texts of all ranks by rank. state.step and state.ranks must be this writer's. Returns the
  // checkpoint's folder. An older folder of the same step is replaced.
  std::filesystem::path commit(const CheckpointState& state, const std::vector<std::string>& shards);

 private:
  std::filesystem::path run_, temporary_;
  int64_t step_, rank_, ranks_;
  std::vector<StateItem> items_;
  bool finished_ = false, committed_ = false;
};

}  // namespace ballast
