#pragma once
// What a file or folder holds, and whether its bytes are right: runs, checkpoints, models, tokenizers, safetensors
// files, token stores and token files of other trainers, metrics.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace ballast {

struct Inspection {
  nlohmann::ordered_json json;  // "kind", "path", "verified" and what belongs to the kind
  std::string text;             // for people, several lines
};

// With `verify`, every byte is read and compared with the hashes there are (safetensors and foreign token
// files have none: their headers are always checked). Throws Error as the readers do; Error(Data) for a path that is none of the kinds.
Inspection inspect(const std::filesystem::path& path, bool verify);

}  // namespace ballast
