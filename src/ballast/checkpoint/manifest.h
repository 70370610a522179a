#pragma once
// The manifest of a checkpoint: every file with its size and hash, written last, so that a folder without a manifest that
// agrees with its files is no checkpoint.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ballast {

constexpr int64_t kCheckpointVersion = 1;
constexpr const char* kManifestName = "manifest.json";

struct FileEntry {
  std::string path;   // relative to the checkpoint folder, with '/', never with ".." or a leading '/'
  int64_t bytes = 0;
  std::string xxh3;   // 16 hex digits, XXH3 64-bit of the content
  bool operator==(const FileEntry&) const = default;
};

struct Manifest {
  int64_t version = kCheckpointVersion;
  int64_t step = 0;
  std::vector<FileEntry> files;  // sorted by path; all files of the folder but the manifest
  bool operator==(const Manifest&) const = default;
};

// XXH3 (64 bits, seed 0) of bytes and of a file, as 16 hex digits. Throws Error(Environment) with errno's text.
std::string xxh3_text(std::span<const char> bytes);
FileEntry describe_file(const std::filesystem::path& folder, const std::string& path);

// The manifest's text: canonical JSON that holds a hash of itself. Parsing refuses any other byte than those written.
std::string manifest_text(const Manifest& manifest);
// Throws Error(CorruptFile) at `file`; Error(Usage) for a version that this program does not read.
Manifest parse_manifest(const std::string& text, const std::string& file);

}  // namespace ballast
