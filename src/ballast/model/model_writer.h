#pragma once
// Writes a model folder that transformers opens: config.json, generation_config.json, safetensors in shards of bounded
// size, tokenizer files. Groups come one at a time; beyond them only one converted chunk is held.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ballast/model/hf_config.h"
#include "ballast/model/safetensors_writer.h"
#include "ballast/plan/model_shape.h"

namespace ballast {

struct ModelWriterOptions {
  DType storage = DType::Float32;            // Float32 or BFloat16 (rounded to nearest even)
  int64_t largest_shard = int64_t{4} << 30;  // bytes of tensors in one file; a larger tensor gets a file of its own
  HfTokenIds token_ids;
  std::map<std::string, std::filesystem::path> tokenizer;  // its files, by their names in the folder; empty = none
};

class ModelWriter {
 public:
  // Works in FOLDER.partial; `folder` must not exist or be empty. Throws Error(Usage) otherwise.
  ModelWriter(std::filesystem::path folder, const ModelShape& shape, ModelWriterOptions options = {});
  ~ModelWriter();  // removes what was not finished
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  // Every group once, in any order; write_range takes a part [begin, begin + count) of a group's flat buffer.
  void write_group(const ParameterGroup& group, const float* flat) { write_range(group, 0, group.numel, flat); }
  void write_range(const ParameterGroup& group, int64_t begin, int64_t count, const float* values);
  // Completes the files and renames the folder into place.
  void finish();

 private:
  void write_text(const std::string& name, const std::string& text);
  void copy_tokenizer();
  std::filesystem::path folder_, partial_;
  ModelConfig config_;
  ModelWriterOptions options_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, size_t> shard_of_;
  int64_t total_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace ballast
