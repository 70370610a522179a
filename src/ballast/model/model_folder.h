#pragma once
// A Hugging Face model folder, read: its configuration and its weights by parameter group, as fp32, from whatever the
// files store. Writing one is model_writer.h.
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "ballast/model/hf_config.h"
#include "ballast/model/safetensors.h"
#include "ballast/plan/model_shape.h"

namespace ballast {

class ModelFolder {
 public:
  // Opens config.json and model.safetensors or model.safetensors.index.json, and checks that the files hold exactly the
  // tensors of the architecture with their shapes (buffers that older files carry are let pass; GPT-2 and base-model
  // files may leave the "transformer." or "model." away). Throws Error: Data for missing files, Usage for config.json,
  // CorruptFile listing every missing, extra and misshapen tensor.
  static ModelFolder open(const std::filesystem::path& folder);

  const ModelConfig& config() const { return config_; }
  const HfTokenIds& token_ids() const { return ids_; }
  const std::filesystem::path& path() const { return path_; }

  // The group's flat buffer, or elements [begin, end) of it, in fp32; the gaps between tensors are zeroed. The group
  // may be of any description of this configuration (frozen or not).
  void load_group(const ParameterGroup& group, float* flat) const { load_range(group, 0, group.numel, flat); }
  void load_range(const ParameterGroup& group, int64_t begin, int64_t end, float* out) const;

 private:
  void check(const ModelShape& shape);
  void require_finite(const std::string& name, int64_t first, std::span<const float> values) const;
  std::filesystem::path path_;
  ModelConfig config_;
  HfTokenIds ids_;
  SafetensorsSet weights_;
  std::map<std::string, std::string> stored_name_;  // tensor of the architecture -> name in the files
};

}  // namespace ballast
