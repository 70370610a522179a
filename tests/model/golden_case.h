#pragma once
// The stored cases of tests/model/golden: a model folder and what transformers computed with it.
#include <ATen/ATen.h>

#include <cstring>
#include <string>
#include <vector>

#include "ballast/model/model_folder.h"

namespace ballast::golden {

inline std::string folder(const std::string& name) {
  return std::string(BALLAST_SOURCE_DIR) + "/tests/model/golden/" + name;
}

inline const std::vector<std::string>& names() {
  static const std::vector<std::string> cases = {"gpt2",          "gpt2-untied", "llama2",  "llama3", "llama-linear",
                                                 "llama-dynamic", "llama-yarn",  "mistral", "qwen2",  "qwen3"};
  return cases;
}

class Case {
 public:
  explicit Case(const std::string& name)
      : model(ModelFolder::open(folder(name))), set_(SafetensorsSet::open_file(folder(name) + "/golden.safetensors")) {}

  bool has(const std::string& key) const { return set_.find(key) != nullptr; }
  at::Tensor floats(const std::string& key) const {
    const StoredTensor& stored = set_.tensors().at(key);
    at::Tensor out = at::empty(stored.shape, at::kFloat);
    read_as_float(stored, key, 0, stored.numel, out.data_ptr<float>());
    return out;
  }
  std::vector<int64_t> integers(const std::string& key) const {
    const StoredTensor& stored = set_.tensors().at(key);
    std::vector<int64_t> out(static_cast<size_t>(stored.numel));
    std::memcpy(out.data(), stored.data, static_cast<size_t>(stored.bytes));
    return out;
  }
  std::vector<std::vector<int64_t>> sequences() const { return {integers("ids.0"), integers("ids.1")}; }

  ModelFolder model;

 private:
  SafetensorsSet set_;
};

// Largest difference relative to the largest value: the bound of every comparison with transformers.
inline double difference(const at::Tensor& found, const at::Tensor& expected) {
  const double scale = expected.abs().max().item<double>();
  return (found - expected).abs().max().item<double>() / (scale > 0 ? scale : 1.0);
}

}  // namespace ballast::golden
