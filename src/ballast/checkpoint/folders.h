#pragma once
// The folders below RUN/checkpoints by name.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ballast {

struct FolderName {
  int64_t step = 0;
  bool best = false;
};
// "step-00000050", "best-step-00000050"; nothing for any other name.
std::optional<FolderName> parse_folder_name(const std::string& name);

struct CheckpointFolder {
  std::filesystem::path path;
  FolderName name;
};
// All of them, highest step first; of one step the plain folder before the best one.
std::vector<CheckpointFolder> list_folders(const std::filesystem::path& run);

// Entries whose name ends in ".tmp": being written, being deleted, or left by a crash.
constexpr const char* kTemporarySuffix = ".tmp";

}  // namespace ballast
