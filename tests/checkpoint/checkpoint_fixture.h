#pragma once
// A small run folder with checkpoints whose every element has a known value.
#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/writer.h"

namespace ballast {

inline CheckpointState state_at(int64_t step, int64_t ranks) {
  CheckpointState state;
  state.step = step;
  state.ranks = ranks;
  state.seed = 0xfedcba9876543210u;
  state.config_fingerprint = "c0ffee";
  state.layout_fingerprint = "1a2b3c";
  state.topology = "{node: 3} = 3 ranks";
  state.cursor = {{"epoch", 1}, {"position", int64_t{1} << 60}};
  state.schedule = nlohmann::json::object();
  state.metrics = {{"loss", 0.1 + 0.2}};
  return state;
}

constexpr int64_t kElements = 1001;  // of the tensor "w", cut unevenly over the ranks

inline float value_of(const std::string& state, int64_t step, int64_t element) {
  return static_cast<float>(step) + static_cast<float>(element) * (state == "adam.m" ? 0.001f : -0.003f);
}

// A checkpoint as `ranks` ranks write it.
inline std::filesystem::path write_checkpoint(const std::filesystem::path& run, int64_t step, int64_t ranks = 3) {
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  for (int64_t rank = 0; rank < ranks; ++rank) writers.push_back(std::make_unique<CheckpointWriter>(run, step, rank, ranks));
  std::vector<std::string> shards;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t begin = kElements * rank / ranks, end = kElements * (rank + 1) / ranks;
    for (const std::string state : {"adam.m", "adam.v"}) {
      at::Tensor data = at::empty({end - begin}, at::kFloat);
      for (int64_t i = begin; i < end; ++i) data.data_ptr<float>()[i - begin] = value_of(state, step, i);
      writers[static_cast<size_t>(rank)]->add({state, "w", begin, end, data});
    }
    shards.push_back(writers[static_cast<size_t>(rank)]->finish_rank());
  }
  std::ofstream(writers[0]->model_folder() / "config.json") << "{\"model_type\": \"gpt2\"}\n";
  std::ofstream(writers[0]->model_folder() / "model.safetensors") << std::string(300, static_cast<char>('a' + step % 26));
  return writers[0]->commit(state_at(step, ranks), shards);
}

inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
// A file's bytes replaced under its name (a new file: hard links keep the old bytes).
inline void replace_content(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace ballast
