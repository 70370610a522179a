#pragma once
// ModelConfig from and to a Hugging Face config.json, as transformers 4.x and 5.x write it. A value that would change
// the arithmetic and is not supported stops with its key; absent keys take the defaults that transformers documents.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ballast/plan/dtype.h"
#include "ballast/plan/model_config.h"

namespace ballast {

// Token ids that config.json carries beside the architecture; generation and data take theirs from the tokenizer.
struct HfTokenIds {
  std::optional<int64_t> bos, pad;
  std::vector<int64_t> eos;  // several: any of them ends a text
};

// The model types that read_hf_config accepts.
const std::vector<std::string>& hf_model_types();

// Throws Error: Data for a file that cannot be read, CorruptFile for text that is no JSON object, Usage for a missing,
// ill-typed, contradictory or unsupported value, always with the key.
ModelConfig read_hf_config(const std::filesystem::path& file);
ModelConfig parse_hf_config(const std::string& text, const std::string& name_for_errors);
HfTokenIds parse_hf_token_ids(const std::string& text, const std::string& name_for_errors);

// What parse_hf_config reads back as the same ModelConfig, with both the 5.x and the 4.x way to say RoPE. `storage` is
// the dtype of the weights beside it. Throws Error(Usage) for an architecture that the model type cannot express.
nlohmann::ordered_json write_hf_config(const ModelConfig& config, const HfTokenIds& ids, DType storage);

}  // namespace ballast
